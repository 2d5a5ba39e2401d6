// SPDX-License-Identifier: Apache-2.0
#pragma once
// One parameter of a search: which of its values is the best while all others stay. A few values are tried first, so
// that no hill of the curve is overlooked, then those of a grid from which a Gaussian process expects the most.
//
// Pure: a function of the scores. Thread safety: none.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace hvd::tune {

// Values are sizes or times: what counts is how often one has the other.
struct Axis {
  int64_t start = 0;
  std::vector<int64_t> first{};  // to be tried, in this order
  std::vector<int64_t> grid{};   // ascending; where further ones may lie
  int64_t least = 1;             // smaller ones are as good as this one

  // Nothing to try: it stays as it is.
  bool fixed() const { return first.empty() && grid.empty(); }
  // The next value that is at least twice as large, or at most half; nothing: there is none.
  std::optional<int64_t> Neighbour(int64_t value, bool larger) const;
};

class AxisSearch {
 public:
  struct Measured {
    int64_t value = 0;
    double score = 0;
  };
  // `base`: the value that it has so far, and the score with it.
  AxisSearch(Axis axis, Measured base, double noise) : axis_(std::move(axis)), noise_(noise), measured_{base} {}

  // What to try next; nothing: all there is was tried.
  std::optional<int64_t> Next() const;
  void Report(Measured measured) { measured_.push_back(measured); }
  // Of a grid: the measured value that the Gaussian process believes to be the best one. Of a few values, which are no
  // curve: the one with the best score, but the base unless that is clearly worse.
  Measured Best() const;

 private:
  bool WasMeasured(int64_t value) const;

  const Axis axis_;
  double noise_;
  std::vector<Measured> measured_;
};

}  // namespace hvd::tune
