// SPDX-License-Identifier: Apache-2.0
// The physical limit: reading, copying, adding, and summing into both of two buffers, with 1 and with 2 pinned threads.
// Bytes are those of each thread's buffer. KERNEL: only this one.
//
// sum_into_both_fresh is what no allreduce of two ranks without a copy can beat: each thread has just written its own
// buffer, then each sums one half of both buffers into both. Below the caches' size it is slower than sum_into_both,
// whose data never leaves the core.
#include <pthread.h>

#include <atomic>
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

enum class Kernel { kRead, kCopy, kAdd, kSumIntoBoth, kFresh };
constexpr const char* kNames[] = {"read", "copy", "add", "sum_into_both", "sum_into_both_fresh"};

// Spins: a thread that had to be woken would start late and run alone.
class StartLine {
 public:
  explicit StartLine(int threads) : threads_(threads) {}
  void Wait() {
    const int turn = turn_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      turn_.store(turn + 1, std::memory_order_release);
    }
    while (turn_.load(std::memory_order_acquire) == turn) sched_yield();
  }

 private:
  int threads_;
  alignas(128) std::atomic<int> arrived_{0};
  alignas(128) std::atomic<int> turn_{0};
};

std::vector<double> Measure(const peers::Settings& settings, Kernel kernel, int threads, size_t bytes) {
  const int iterations = std::max(9, settings.Iterations(bytes));
  std::vector<std::vector<double>> times(threads, std::vector<double>(iterations));
  StartLine start_line(threads);
  float* own[2] = {};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      peers::PinTo(t);
      float *a = own[t] = peers::AllocateBuffer(bytes), *b = peers::AllocateBuffer(bytes);
      const size_t n = bytes / 4, begin = t * (n / 2), half = t == 0 ? n / 2 : n - n / 2;
      volatile float sink = 0;
      const auto run = [&] {
        if (kernel == Kernel::kRead) sink = Read(a, n);
        if (kernel == Kernel::kCopy) std::memcpy(a, b, bytes);
        if (kernel == Kernel::kAdd) Add(a, b, n);
        if (kernel == Kernel::kSumIntoBoth) SumIntoBoth(a, b, n);
        if (kernel == Kernel::kFresh) SumIntoBoth(own[0] + begin, own[1] + begin, half);
        asm volatile("" ::: "memory");
      };
      start_line.Wait();
      run();
      run();
      for (int i = 0; i < iterations; ++i) {
        start_line.Wait();
        if (kernel == Kernel::kFresh) {
          peers::Refresh(a, n);
          start_line.Wait();
        }
        const double start = peers::NowMicros();
        run();
        times[t][i] = peers::NowMicros() - start;
      }
      start_line.Wait();
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
  const peers::Settings settings;
  const char* only = std::getenv("KERNEL");
  for (int threads : {1, 2}) {
    for (int kernel = 0; kernel < static_cast<int>(std::size(kNames)); ++kernel) {
      if (only != nullptr && std::strcmp(only, kNames[kernel]) != 0) continue;
      if (kernel == static_cast<int>(Kernel::kFresh) && threads != 2) continue;
      for (size_t bytes : settings.Sizes()) {
        if (bytes < 16384) continue;
        peers::Emit(kNames[kernel], threads, bytes, Measure(settings, static_cast<Kernel>(kernel), threads, bytes));
      }
    }
  }
}
