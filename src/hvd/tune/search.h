// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which fusion threshold reduces the most bytes per microsecond: says what to measure next, is told the score, and
// ends with a choice that is not worse than the start.
//
//   start        the value that the job began with
//   exploration  a few values far apart, then wherever a Gaussian process expects the most, by powers of the root of 2
//   duel         start, best, best, start: the best stays only if both of its scores beat both of the start's
//
// The duel is there because the best of many noisy scores was also the luckiest.
// Pure: a function of the scores. Thread safety: none.

#include <cstdint>
#include <vector>

namespace hvd::tune {

struct SearchOptions {
  int64_t start = 0;     // bytes
  int max_samples = 20;  // with fewer than kLeastSamples the start is measured once, and kept
  double noise = 0.8;    // of a score, as GaussianProcess takes it
  bool fixed = false;    // the start is what it has to be
};

class Search {
 public:
  // Start, one value to explore, and the duel.
  static constexpr int kLeastSamples = 6;

  explicit Search(const SearchOptions& options);

  // What the next sample is measured with; once finished, the choice.
  int64_t threshold() const { return threshold_; }
  bool finished() const { return stage_ == Stage::kFinished; }
  // The sample with threshold() scored this much.
  void Report(double score);
  // Ends the search with the start's value: there is nothing to find.
  void KeepStart();

  struct Measured {
    int64_t threshold = 0;
    double score = 0;
  };
  // The choice, or the best so far, and the start, each with what it scored last; 0: not measured yet.
  Measured best() const { return best_; }
  Measured start() const { return start_; }
  int samples() const { return samples_; }

 private:
  enum class Stage { kStart, kExploration, kDuel, kFinished };

  void Explore();
  void BeginDuel();
  void EndDuel();
  // The measured value that the Gaussian process believes to be the best one.
  Measured MostPromising() const;
  bool WasMeasured(int64_t threshold) const;

  const SearchOptions options_;
  Stage stage_ = Stage::kStart;
  int64_t threshold_;
  int samples_ = 0;
  std::vector<Measured> measured_;  // before the duel
  std::vector<double> duel_;
  Measured best_;
  Measured start_;
};

}  // namespace hvd::tune
