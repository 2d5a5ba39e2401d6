// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the peers' and the floor programs share: sizes, iteration counts, fresh data, statistics, one CSV line per size.
// hvd_perf uses the same sizes, iterations and rules, so that the figures may be compared.
//
// Settings come from the environment, because mpirun hands that on: NP, SIZES (bytes, a comma list), FRESH (0 or
// 1; default 1), SLOW (divides the iterations by 4).
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace peers {

inline double NowMicros() {
  using std::chrono::duration;
  return duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline size_t FromEnv(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

struct Settings {
  int ranks = static_cast<int>(FromEnv("NP", 2));
  bool fresh = FromEnv("FRESH", 1) != 0;
  bool slow = FromEnv("SLOW", 0) != 0;

  std::vector<size_t> Sizes() const {
    const char* text = std::getenv("SIZES");
    if (text == nullptr) text = "4,1024,16384,65536,262144,1048576,4194304,16777216";
    std::vector<size_t> sizes;
    for (char* end = nullptr; *text != '\0'; text = *end == ',' ? end + 1 : end) {
      sizes.push_back(std::strtoull(text, &end, 0));
      if (end == text) std::abort();  // no number
    }
    return sizes;
  }
  size_t Largest() const {
    const std::vector<size_t> sizes = Sizes();
    return *std::max_element(sizes.begin(), sizes.end());
  }

  int Iterations(size_t bytes) const {
    int iterations = bytes <= 1024           ? 4000
                     : bytes <= (16u << 10)  ? 2000
                     : bytes <= (64u << 10)  ? 1000
                     : bytes <= (256u << 10) ? 500
                     : bytes <= (1u << 20)   ? 200
                     : bytes <= (4u << 20)   ? 60
                     : bytes <= (16u << 20)  ? 20
                     : bytes <= (64u << 20)  ? 8
                                             : 5;
    if (ranks > 2) iterations /= 4;
    if (slow) iterations /= 4;
    return std::max(3, iterations);
  }
  int Warmup(size_t bytes) const { return std::max(2, Iterations(bytes) / 10); }
};

// Prints "op,ranks,bytes,iterations,min_us,median_us,p90_us". `times` are those of the slowest rank.
inline void Emit(const char* op, int ranks, size_t bytes, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const size_t n = times.size();
  std::printf("%s,%d,%zu,%zu,%.4f,%.4f,%.4f\n", op, ranks, bytes, n, times.front(), times[n / 2],
              times[std::min(n - 1, n * 9 / 10)]);
  std::fflush(stdout);
}

// Private memory where malloc puts it, present before anything is timed.
inline float* AllocateBuffer(size_t bytes) {
  void* memory = std::malloc(bytes);
  std::memset(memory, 0x11, bytes);
  std::memset(memory, 0, bytes);
  return static_cast<float*>(memory);
}

// What a backward pass does before a gradient is reduced.
inline void Refresh(float* data, size_t count) {
  std::memset(data, 0, count * sizeof(float));
  asm volatile("" ::: "memory");
}

inline void PinTo(int rank) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  int skip = rank % CPU_COUNT(&usable);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable) || skip-- > 0) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    sched_setaffinity(0, sizeof own, &own);
    return;
  }
}

}  // namespace peers
