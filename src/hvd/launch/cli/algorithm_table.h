// SPDX-License-Identifier: Apache-2.0
#pragma once
// --algorithms: the table that ranks would work by, with the variables that they would get.

#include <string>

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"
#include "hvd/launch/cli/parse.h"
#include "hvd/launch/plan/environment.h"

namespace hvd::launch {

// With -np, that of a job on these hosts; else the whole one. For people, or with --json as one line of JSON.
Result<std::string> AlgorithmTable(const Options& options, const Environment& environment, const FileReader& read);

}  // namespace hvd::launch
