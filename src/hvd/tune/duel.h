// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether one choice is really better than another: both are measured twice, side by side (holder, challenger,
// challenger, holder), and the challenger wins only if both of its scores beat both of the holder's. The best of many
// noisy scores was also the luckiest; it is not twice.
//
// Pure. Thread safety: none.

#include <algorithm>
#include <array>
#include <cstddef>

namespace hvd::tune {

class Duel {
 public:
  static constexpr size_t kSamples = 4;
  // What is not better by this factor is as good.
  static constexpr double kTie = 1.01;

  // Whether the next sample is the challenger's.
  bool challenges() const { return count_ == 1 || count_ == 2; }
  void Report(double score) { scores_[count_++] = score; }
  bool over() const { return count_ == kSamples; }
  // Once it is over.
  bool won() const { return std::min(scores_[1], scores_[2]) > kTie * std::max(scores_[0], scores_[3]); }
  double challenger() const { return (scores_[1] + scores_[2]) / 2; }
  double holder() const { return (scores_[0] + scores_[3]) / 2; }

 private:
  std::array<double, kSamples> scores_{};
  size_t count_ = 0;
};

}  // namespace hvd::tune
