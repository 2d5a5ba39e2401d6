// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the flags of an elastic job say: its hosts or the script that prints them, its sizes and its time-outs.
//
// Thread safety: all functions are pure.

#include "hvd/launch/cli/options.h"
#include "hvd/launch/cli/parse.h"
#include "hvd/launch/elastic/job.h"
#include "hvd/launch/plan/plan.h"

namespace hvd::launch::elastic {

// All but `job`. Hosts must be this machine, according to `is_here`.
Result<ElasticJob::Settings> PlanElastic(const Options& options, const Plan& plan, const Environment& environment,
                                         const FileReader& read, const IsHere& is_here);

// The names of this machine become one name with the sum of their slots. An error names a host that is another one.
Result<std::vector<Host>> MergeHere(const std::vector<Host>& hosts, std::string_view origin, const std::string& name,
                                    const IsHere& is_here);

}  // namespace hvd::launch::elastic
