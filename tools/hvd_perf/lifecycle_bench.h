// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an engine costs apart from its collectives: start, idling, memory. Each function starts its own ranks, prints or
// writes its result, and returns an exit status.
#include "hvd_perf/options.h"

namespace hvd_perf {

int RunInitBench(const Options& options);
int RunIdleBench(const Options& options);
int RunMemoryBench(const Options& options);

}  // namespace hvd_perf
