// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "hvd_perf/group.h"

namespace hvd_perf {

// The compute of a step, which goes on beside the reductions or instead of them.
class Compute {
 public:
  virtual ~Compute() = default;
  virtual void Begin() = 0;
  // Returns when this share of the step's work is done.
  virtual void Until(double share) = 0;
  // Whether this rank's core writes the gradients, as a part of the step. Else they are written beside it.
  virtual bool writes() const = 0;
};

// Elsewhere: this rank's core is free until a gradient is due, as beside an accelerator.
std::unique_ptr<Compute> WaitingCompute(double seconds);

// Times that a calibration gathers from all ranks at once.
inline constexpr int kMostCalibrations = 5;

// On this rank's core: a fixed number of multiplications, which take `seconds` while nothing disturbs the slowest rank.
// All ranks call it.
std::unique_ptr<Compute> BusyCompute(double seconds, Group* group);

}  // namespace hvd_perf
