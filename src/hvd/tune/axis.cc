// SPDX-License-Identifier: Apache-2.0
#include "hvd/tune/axis.h"

#include <algorithm>
#include <cmath>

#include "hvd/tune/duel.h"
#include "hvd/tune/gaussian_process.h"

namespace hvd::tune {
namespace {

// Two values whose powers of two differ by more hardly tell about each other.
constexpr double kReach = 2;

double PowerOf(const Axis& axis, int64_t value) {
  return std::log2(static_cast<double>(std::max({value, axis.least, int64_t{1}})));
}

GaussianProcess Believe(const Axis& axis, const std::vector<AxisSearch::Measured>& measured, double noise) {
  std::vector<double> points;
  std::vector<double> scores;
  for (const AxisSearch::Measured& m : measured) {
    points.push_back(PowerOf(axis, m.value));
    scores.push_back(m.score);
  }
  return GaussianProcess(std::move(points), std::move(scores), noise, kReach);
}

}  // namespace

std::optional<int64_t> Axis::Neighbour(int64_t value, bool larger) const {
  std::optional<int64_t> nearest;
  const auto consider = [&](int64_t other) {
    if (larger ? other / 2 < value || other <= value : other > value / 2 || other >= value) return;
    if (!nearest || (larger ? other < *nearest : other > *nearest)) nearest = other;
  };
  consider(start);
  for (const int64_t other : first) consider(other);
  for (const int64_t other : grid) consider(other);
  return nearest;
}

bool AxisSearch::WasMeasured(int64_t value) const {
  return std::ranges::any_of(measured_, [&](const Measured& m) { return m.value == value; });
}

std::optional<int64_t> AxisSearch::Next() const {
  for (const int64_t value : axis_.first) {
    if (!WasMeasured(value)) return value;
  }
  if (axis_.grid.empty()) return {};
  const GaussianProcess belief = Believe(axis_, measured_, noise_);
  std::optional<int64_t> next;
  double most = 0;
  for (const int64_t value : axis_.grid) {
    if (WasMeasured(value)) continue;
    const double expected = belief.ExpectedImprovement(PowerOf(axis_, value));
    if (next && expected <= most) continue;
    most = expected;
    next = value;
  }
  return next;
}

AxisSearch::Measured AxisSearch::Best() const {
  if (axis_.grid.empty()) {
    const Measured best = *std::ranges::max_element(measured_, {}, &Measured::score);
    return best.score > Duel::kTie * measured_.front().score ? best : measured_.front();
  }
  const GaussianProcess belief = Believe(axis_, measured_, noise_);
  return *std::ranges::max_element(measured_, {},
                                   [&](const Measured& m) { return belief.At(PowerOf(axis_, m.value)).mean; });
}

}  // namespace hvd::tune
