// SPDX-License-Identifier: Apache-2.0
#pragma once
// Steps of training without the training: the gradients of a known network are reduced in the order in which a backward
// pass makes them, while the rest of the step is computed.
#include <algorithm>
#include <string>
#include <vector>

#include "hvd_perf/group.h"
#include "hvd_perf/options.h"

namespace hvd_perf {

// Seconds of the slowest rank, medians over steps, all three measured in turns.
struct TrainRow {
  std::string compute;  // "wait" or "busy"
  int steps = 0;
  double compute_s = 0;        // a step without reductions
  double communication_s = 0;  // reductions with nothing else to do
  double step_s = 0;

  double hidden() const { return 1 - (step_s - compute_s) / communication_s; }
  double efficiency() const { return compute_s / step_s; }
  // The step took less time than the part of it that is compute, by as much as the table shows: steps differ by more
  // than what is measured.
  bool noise() const { return std::max(hidden(), efficiency()) >= 1.0005; }
};

// Measured steps where the options do not say.
int StepsFor(const Options& options);

// Checks the sums, then times each kind of compute. Needs hvd_init; the rows are complete on every rank.
std::vector<TrainRow> RunTrainBench(const Options& options, Group* group);

}  // namespace hvd_perf
