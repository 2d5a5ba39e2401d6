// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which values of several parameters reduce the most bytes per microsecond: says what to measure next, is told the
// score, and ends with a choice that is not worse than the start.
//
//   start        the values that the job began with
//   exploration  one parameter after the other, each with the best values so far of those before it (axis.h)
//   duel         start against best (duel.h): the best stays only if it wins
//
// Pure: a function of the scores. Thread safety: none.

#include <cstdint>
#include <optional>
#include <vector>

#include "hvd/tune/axis.h"
#include "hvd/tune/duel.h"

namespace hvd::tune {

// A value of every parameter.
using Point = std::vector<int64_t>;

struct SearchOptions {
  std::vector<Axis> axes{};
  int max_samples = 20;  // with fewer than kLeastSamples the start is measured once, and kept
  double noise = 0.8;    // of a score, as GaussianProcess takes it
};

class Search {
 public:
  // Start, one value to explore, and the duel.
  static constexpr int kLeastSamples = 6;

  explicit Search(SearchOptions options);

  // What the next sample is measured with; once finished, the choice.
  const Point& point() const { return point_; }
  bool finished() const { return stage_ == Stage::kFinished; }
  // Of this parameter there is nothing to find. Before the first report.
  void Fix(size_t axis);
  // The sample with point() scored this much.
  void Report(double score);

  struct Measured {
    Point point;
    double score = 0;
  };
  // The choice, or the best so far, and the start, each with what it scored last; 0: not measured yet.
  const Measured& best() const { return best_; }
  const Measured& start() const { return start_; }
  int samples() const { return samples_; }
  const std::vector<Axis>& axes() const { return options_.axes; }

 private:
  enum class Stage { kStart, kExploration, kDuel, kFinished };

  // On to this parameter, or one after it that has something to try.
  void BeginAxis(size_t axis);
  void Explore();
  void BeginDuel();
  void ReportDuel(double score);
  void KeepStart();

  SearchOptions options_;
  Stage stage_ = Stage::kStart;
  Point point_;
  int samples_ = 0;
  size_t axis_ = 0;
  int axis_samples_ = 0;  // that are left for it
  std::optional<AxisSearch> search_;
  Duel duel_;
  Measured best_;
  Measured start_;
};

}  // namespace hvd::tune
