// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/compute.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hvd_perf/process.h"

namespace hvd_perf {
namespace {

class Waiting : public Compute {
 public:
  explicit Waiting(double seconds) : seconds_(seconds) {}
  void Begin() override { clock_gettime(CLOCK_MONOTONIC, &start_); }
  void Until(double share) override {
    const int64_t due = start_.tv_nsec + std::llround(share * seconds_ * 1e9);
    const timespec until{start_.tv_sec + due / kSecond, due % kSecond};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
    }
  }
  bool writes() const override { return false; }

 private:
  static constexpr int64_t kSecond = 1'000'000'000;
  double seconds_;
  timespec start_{};
};

class Busy : public Compute {
 public:
  Busy(double seconds, Group* group) : left_(kSide * kSide, 1.0f / kSide), out_(left_) {
    std::vector<double> times(kMostCalibrations);
    for (double& time : times) {
      const double start = NowMicros();
      for (int i = 0; i < kSample; ++i) Multiply();
      time = NowMicros() - start;
    }
    group->Max(&times);
    std::sort(times.begin(), times.end());
    total_ = seconds * 1e6 / (times[times.size() / 2] / kSample);
  }
  void Begin() override { done_ = 0; }
  void Until(double share) override {
    for (const auto target = static_cast<int64_t>(share * total_); done_ < target; ++done_) Multiply();
  }
  bool writes() const override { return true; }

 private:
  static constexpr int kSide = 64;
  static constexpr int kSample = 300;

  // The next product needs this one, so that none can be left out.
  void Multiply() {
    std::fill(product_, product_ + kSide * kSide, 0.0f);
    for (int row = 0; row < kSide; ++row) {
      for (int k = 0; k < kSide; ++k) {
        const float factor = out_[row * kSide + k];
        for (int column = 0; column < kSide; ++column) {
          product_[row * kSide + column] += factor * left_[k * kSide + column];
        }
      }
    }
    std::copy(product_, product_ + kSide * kSide, out_.begin());
  }

  std::vector<float> left_;
  std::vector<float> out_;
  float product_[kSide * kSide];
  double total_ = 0;
  int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<Compute> WaitingCompute(double seconds) { return std::make_unique<Waiting>(seconds); }

std::unique_ptr<Compute> BusyCompute(double seconds, Group* group) { return std::make_unique<Busy>(seconds, group); }

}  // namespace hvd_perf
