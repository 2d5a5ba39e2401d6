// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is tuned: the parameters of a search, the values that are tried of each, and what they are called.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hvd/tune/search.h"

namespace hvd::tune {

// Indices into a point.
enum Parameter : size_t {
  kFusion,  // bytes that are fused
  kChunk,   // chunks and slices, in percent of the start's
  kEager,   // most bytes beside a mark
  kSpin,    // microseconds for which a rank looks before it sleeps
  kParameters,
};

// The values that the job began with, and which of them stay.
struct Beginning {
  int64_t fusion_threshold = 128 << 20;
  int64_t eager_bytes = 64 << 10;
  int64_t spin_us = 1000;
  bool fusion_fixed = false;
  bool chunk_fixed = false;
  bool eager_fixed = false;
  bool spin_fixed = false;
};
std::vector<Axis> AxesFor(const Beginning& beginning);

// Words for values that differ from those of another point, such as "a fusion threshold of 8 MiB and chunks of 50 %".
// Of two equal ones: for all.
std::string Describe(const Point& point, const Point& other);
// The variables that set them in the next job. `chunks`: those for chunks of so many percent.
std::string VariablesFor(const Point& point, const Point& start, const std::function<std::string(int64_t)>& chunks);

}  // namespace hvd::tune
