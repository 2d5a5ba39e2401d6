// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <vector>

namespace hvd_perf {

struct Gradient {
  uint64_t elements;
  double ready;  // the share of the step's work that is done when it is there
};

// What a step of a known network reduces, in the order of the backward pass. benchmarks/models.py has the layers.
struct Model {
  const char* name;
  double ratio;  // time of compute for each time of communication
  std::vector<Gradient> gradients;

  uint64_t elements() const;
};

// Null: there is none of that name.
const Model* FindModel(const char* name);

}  // namespace hvd_perf
