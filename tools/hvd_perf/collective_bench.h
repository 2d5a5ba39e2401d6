// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <vector>

#include "hvd_perf/group.h"
#include "hvd_perf/options.h"

namespace hvd_perf {

// One line of the result. Times in microseconds per operation, slowest rank of each iteration.
struct Row {
  uint64_t bytes = 0;
  uint64_t count = 0;
  int iters = 0;
  double min_us = 0, median_us = 0, p90_us = 0;
  double algbw = 0, busbw = 0;  // GB/s (1e9) of the median
};

// Timed iterations at this size where the options do not say.
int IterationsFor(const Options& options, uint64_t bytes, int ranks);

// Checks and times every size. Needs hvd_init; the rows are complete on every rank.
std::vector<Row> RunCollectiveBench(const Options& options, Group* group);

}  // namespace hvd_perf
