// SPDX-License-Identifier: Apache-2.0
// Softmax regression on real handwritten digits, data-parallel: examples/numpy/digits.py in C++.
//
// Each rank trains on its own rows; gradients are averaged by one allreduce a step. The shards are equal in size, so
// the average of the ranks' gradients is the gradient of the whole batch: the result does not depend on the number of
// ranks.
//
//   digits FILE    where FILE comes from write_digits.py
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <hvd/hvd.hpp>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// Shards of 2, 3, 4, 5, 6, 8, 9 or 10 ranks are equal, and so are their batches.
constexpr int kTrainingRows = 1440;
constexpr int kBatchRows = 360;
constexpr int kEpochs = 20;
constexpr double kLearningRate = 1.0;
constexpr int kPixels = 64;
constexpr int kFeatures = kPixels + 1;  // the last is the constant 1
constexpr int kClasses = 10;

struct Digit {
  std::array<double, kFeatures> features;
  int label;
};

std::vector<Digit> Load(const char* path) {
  std::ifstream file(path);
  std::vector<Digit> digits;
  for (std::string line; std::getline(file, line);) {
    std::ranges::replace(line, ',', ' ');
    const char* at = line.c_str();
    const auto next = [&at] {
      char* end = nullptr;
      const long value = std::strtol(at, &end, 10);
      if (end == at) throw std::runtime_error("a line has too few numbers");
      at = end;
      return value;
    };
    Digit digit;
    for (int i = 0; i < kPixels; ++i) digit.features[i] = static_cast<double>(next()) / 16.0;
    digit.features[kPixels] = 1.0;
    digit.label = static_cast<int>(next());
    if (digit.label < 0 || digit.label >= kClasses) throw std::runtime_error("a line has a label that is no digit");
    digits.push_back(digit);
  }
  if (digits.size() <= kTrainingRows) throw std::runtime_error(std::string(path) + " has too few lines, or none");
  return digits;
}

using Scores = std::array<double, kClasses>;

Scores ScoresOf(const Digit& digit, std::span<const double> weights) {
  Scores scores{};
  for (int i = 0; i < kFeatures; ++i) {
    for (int c = 0; c < kClasses; ++c) scores[c] += digit.features[i] * weights[i * kClasses + c];
  }
  return scores;
}

// Sets the gradient of the mean cross entropy and returns that.
double LossAndGradient(std::span<const Digit> digits, std::span<const double> weights, std::span<double> gradient) {
  const auto count = static_cast<double>(digits.size());
  std::ranges::fill(gradient, 0.0);
  double loss = 0.0;
  for (const Digit& digit : digits) {
    Scores p = ScoresOf(digit, weights);
    const double most = *std::ranges::max_element(p);
    for (double& score : p) score = std::exp(score - most);
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& score : p) score /= sum;
    loss -= std::log(p[digit.label]) / count;
    p[digit.label] -= 1.0;
    for (int i = 0; i < kFeatures; ++i) {
      for (int c = 0; c < kClasses; ++c) gradient[i * kClasses + c] += digit.features[i] * p[c] / count;
    }
  }
  return loss;
}

double Accuracy(std::span<const Digit> digits, std::span<const double> weights) {
  const auto right = std::ranges::count_if(digits, [&](const Digit& digit) {
    const Scores scores = ScoresOf(digit, weights);
    return std::ranges::max_element(scores) - scores.begin() == digit.label;
  });
  return static_cast<double>(right) / static_cast<double>(digits.size());
}

void Train(std::span<const Digit> digits) {
  if (kBatchRows % hvd::size() != 0) throw std::runtime_error("the ranks cannot share batches of 360 rows equally");
  const int share = kBatchRows / hvd::size();
  hvd::buffer<double> weights(kFeatures * kClasses);
  hvd::buffer<double> gradient(weights.size());  // shared memory: reduced without a copy
  hvd::broadcast(weights, 0, {.name = "weights"});
  double loss = 0.0;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    loss = 0.0;
    for (int first = 0; first < kTrainingRows; first += kBatchRows) {
      const auto mine = digits.subspan(first + hvd::rank() * share, share);
      loss += LossAndGradient(mine, weights, gradient) * kBatchRows / kTrainingRows;
      hvd::allreduce(gradient, {.name = "gradient"});
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= kLearningRate * gradient[i];
    }
    loss = hvd::allreduce(loss, {.name = "loss"});
  }
  if (hvd::rank() == 0) {
    const double accuracy = Accuracy(digits.subspan(kTrainingRows), weights);
    std::printf("%d ranks, loss %.4f, test accuracy %.3f\n", hvd::size(), loss, accuracy);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: digits FILE, where FILE comes from write_digits.py\n");
    return 2;
  }
  try {
    const std::vector<Digit> digits = Load(argv[1]);
    hvd::session job;
    Train(digits);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: %s\n", error.what());
    return 1;
  }
}
