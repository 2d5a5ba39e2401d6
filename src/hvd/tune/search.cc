// SPDX-License-Identifier: Apache-2.0
#include "hvd/tune/search.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hvd/tune/gaussian_process.h"

namespace hvd::tune {
namespace {

// Below the first hardly anything is fused; above the last nothing changes any more.
constexpr int kLeastPower = 16;
constexpr int kMostPower = 27;
// Tried first, so that no hill of the curve is overlooked.
constexpr std::array<int64_t, 4> kFirst = {1 << 20, 8 << 20, 64 << 20, 64 << 10};
// Two thresholds whose powers of two differ by more hardly tell about each other.
constexpr double kReach = 2;
constexpr int kDuelSamples = 4;
// What is not better by this factor is as good as the start.
constexpr double kTie = 1.01;

double PowerOf(int64_t threshold) {
  return threshold <= 1 << kLeastPower ? kLeastPower : std::log2(static_cast<double>(threshold));
}

int64_t ThresholdOf(int half_powers) {
  constexpr int64_t kPage = 4096;
  return std::llround(std::exp2(half_powers / 2.0) / kPage) * kPage;
}

GaussianProcess Believe(const std::vector<Search::Measured>& measured, double noise) {
  std::vector<double> points;
  std::vector<double> scores;
  for (const Search::Measured& m : measured) {
    points.push_back(PowerOf(m.threshold));
    scores.push_back(m.score);
  }
  return GaussianProcess(std::move(points), std::move(scores), noise, kReach);
}

}  // namespace

Search::Search(const SearchOptions& options)
    : options_(options), threshold_(options.start), best_{options.start}, start_{options.start} {}

bool Search::WasMeasured(int64_t threshold) const {
  return std::ranges::any_of(measured_, [&](const Measured& m) { return m.threshold == threshold; });
}

Search::Measured Search::MostPromising() const {
  const GaussianProcess belief = Believe(measured_, options_.noise);
  return *std::ranges::max_element(measured_, {},
                                   [&](const Measured& m) { return belief.At(PowerOf(m.threshold)).mean; });
}

void Search::Report(double score) {
  if (finished()) return;
  ++samples_;
  if (stage_ == Stage::kDuel) {
    duel_.push_back(score);
    if (duel_.size() == kDuelSamples) return EndDuel();
    threshold_ = duel_.size() < kDuelSamples - 1 ? best_.threshold : start_.threshold;
    return;
  }
  measured_.push_back({threshold_, score});
  if (stage_ == Stage::kStart) {
    start_.score = score;
    if (options_.fixed || options_.max_samples < kLeastSamples) return KeepStart();
    stage_ = Stage::kExploration;
  }
  best_ = MostPromising();
  samples_ + kDuelSamples < options_.max_samples ? Explore() : BeginDuel();
}

void Search::Explore() {
  for (const int64_t threshold : kFirst) {
    if (WasMeasured(threshold)) continue;
    threshold_ = threshold;
    return;
  }
  const GaussianProcess belief = Believe(measured_, options_.noise);
  double most = 0;
  bool found = false;
  for (int half = 2 * kLeastPower; half <= 2 * kMostPower; ++half) {
    const int64_t threshold = ThresholdOf(half);
    if (WasMeasured(threshold)) continue;
    const double expected = belief.ExpectedImprovement(PowerOf(threshold));
    if (found && expected <= most) continue;
    found = true;
    most = expected;
    threshold_ = threshold;
  }
  if (!found) BeginDuel();
}

void Search::BeginDuel() {
  if (best_.threshold == start_.threshold) return KeepStart();
  stage_ = Stage::kDuel;
  threshold_ = start_.threshold;
}

void Search::EndDuel() {
  start_.score = (duel_.front() + duel_.back()) / 2;
  best_.score = (duel_[1] + duel_[2]) / 2;
  if (std::min(duel_[1], duel_[2]) <= kTie * std::max(duel_.front(), duel_.back())) return KeepStart();
  stage_ = Stage::kFinished;
  threshold_ = best_.threshold;
}

void Search::KeepStart() {
  stage_ = Stage::kFinished;
  best_ = start_;
  threshold_ = start_.threshold;
}

}  // namespace hvd::tune
