// SPDX-License-Identifier: Apache-2.0
#include "hvd/tune/gaussian_process.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

namespace hvd::tune {
namespace {

// Keeps the factorisation possible where measurements are said to be exact.
constexpr double kLeastVariance = 1e-6;
// What an improvement must exceed to count, in units of the spread: prefers the unknown to the almost equal.
constexpr double kMargin = 0.01;

double Density(double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi); }
double Cumulative(double z) { return std::erfc(-z / std::numbers::sqrt2) / 2; }

}  // namespace

GaussianProcess::GaussianProcess(std::vector<double> points, std::vector<double> values, double noise, double reach)
    : points_(std::move(points)), reach_(reach) {
  const size_t n = points_.size();
  const auto count = static_cast<double>(n);
  center_ = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - center_) * (value - center_);
  // Values that are all equal have no spread; any unit will do.
  spread_ = std::max(std::sqrt(squares / count), std::max(std::abs(center_) * 1e-6, 1e-300));
  for (double& value : values) value = (value - center_) / spread_;

  factor_.assign(n, std::vector<double>(n, 0.0));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = Kernel(points_[i], points_[j]) + (i == j ? noise * noise + kLeastVariance : 0);
      for (size_t k = 0; k < j; ++k) sum -= factor_[i][k] * factor_[j][k];
      factor_[i][j] = i == j ? std::sqrt(std::max(sum, kLeastVariance)) : sum / factor_[j][j];
    }
  }
  weights_ = Backward(Forward(std::move(values)));
  best_ = -std::numeric_limits<double>::infinity();
  for (const double point : points_) best_ = std::max(best_, Standardised(point).mean);
}

double GaussianProcess::Kernel(double a, double b) const {
  const double distance = (a - b) / reach_;
  return std::exp(-distance * distance / 2);
}

std::vector<double> GaussianProcess::Forward(std::vector<double> b) const {
  for (size_t i = 0; i < b.size(); ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= factor_[i][k] * b[k];
    b[i] /= factor_[i][i];
  }
  return b;
}

std::vector<double> GaussianProcess::Backward(std::vector<double> b) const {
  for (size_t i = b.size(); i-- > 0;) {
    for (size_t k = i + 1; k < b.size(); ++k) b[i] -= factor_[k][i] * b[k];
    b[i] /= factor_[i][i];
  }
  return b;
}

GaussianProcess::Guess GaussianProcess::Standardised(double point) const {
  std::vector<double> near;
  for (const double known : points_) near.push_back(Kernel(point, known));
  const double mean = std::inner_product(near.begin(), near.end(), weights_.begin(), 0.0);
  const std::vector<double> told = Forward(std::move(near));
  const double variance = 1 - std::inner_product(told.begin(), told.end(), told.begin(), 0.0);
  return {mean, std::sqrt(std::max(variance, 0.0))};
}

GaussianProcess::Guess GaussianProcess::At(double point) const {
  const Guess guess = Standardised(point);
  return {center_ + spread_ * guess.mean, spread_ * guess.deviation};
}

double GaussianProcess::ExpectedImprovement(double point) const {
  const Guess guess = Standardised(point);
  const double gain = guess.mean - best_ - kMargin;
  if (guess.deviation <= 0) return spread_ * std::max(gain, 0.0);
  const double z = gain / guess.deviation;
  return spread_ * (gain * Cumulative(z) + guess.deviation * Density(z));
}

}  // namespace hvd::tune
