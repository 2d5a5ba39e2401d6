// SPDX-License-Identifier: Apache-2.0
// The physical limit: reading, copying, adding, and summing into both of two buffers, with 1 and with 2 pinned threads.
// Bytes are those of each thread's buffer. Build: g++ -std=c++20 -O3 -march=native -pthread membw.cc -o membw
#include <pthread.h>

#include <barrier>
#include <thread>

#include "common.h"

namespace {

float Read(const float* data, size_t n) {
  float lanes[64] = {};
  for (size_t i = 0; i + 64 <= n; i += 64) {
    for (int k = 0; k < 64; ++k) lanes[k] += data[i + k];
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}
[[gnu::noinline]] void Add(float* __restrict to, const float* __restrict from, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += from[i];
}
// Not inlined: the compiler would forget __restrict there and not vectorise.
[[gnu::noinline]] void SumIntoBoth(float* __restrict a, float* __restrict b, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const float sum = a[i] + b[i];
    a[i] = sum;
    b[i] = sum;
  }
}

enum class Kernel { kRead, kCopy, kAdd, kSumIntoBoth };
constexpr const char* kNames[] = {"read", "copy", "add", "sum_into_both"};

std::vector<double> Measure(const peers::Settings& settings, Kernel kernel, int threads, size_t bytes) {
  const int iterations = std::max(9, settings.Iterations(bytes));
  std::vector<std::vector<double>> times(threads, std::vector<double>(iterations));
  std::barrier<> start_line(threads);
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      peers::PinTo(t);
      float *a = peers::AllocateBuffer(bytes), *b = peers::AllocateBuffer(bytes);
      const size_t n = bytes / 4;
      volatile float sink = 0;
      const auto run = [&] {
        if (kernel == Kernel::kRead) sink = Read(a, n);
        if (kernel == Kernel::kCopy) std::memcpy(a, b, bytes);
        if (kernel == Kernel::kAdd) Add(a, b, n);
        if (kernel == Kernel::kSumIntoBoth) SumIntoBoth(a, b, n);
        asm volatile("" ::: "memory");
      };
      run();
      run();
      for (int i = 0; i < iterations; ++i) {
        start_line.arrive_and_wait();
        const double start = peers::NowMicros();
        run();
        times[t][i] = peers::NowMicros() - start;
      }
      std::free(a);
      std::free(b);
    });
  }
  for (auto& worker : workers) worker.join();
  for (int t = 1; t < threads; ++t) {
    for (int i = 0; i < iterations; ++i) times[0][i] = std::max(times[0][i], times[t][i]);
  }
  return times[0];
}

}  // namespace

int main() {
  peers::Settings settings;
  settings.min_bytes = std::max<size_t>(settings.min_bytes, 16384);
  for (int threads : {1, 2}) {
    for (Kernel kernel : {Kernel::kRead, Kernel::kCopy, Kernel::kAdd, Kernel::kSumIntoBoth}) {
      for (size_t bytes : settings.Sizes()) {
        peers::Emit(kNames[static_cast<int>(kernel)], threads, bytes, Measure(settings, kernel, threads, bytes));
      }
    }
  }
}
