// SPDX-License-Identifier: Apache-2.0
// One-way latency of a cache line between two cores, in windows over time: "min,median,max" nanoseconds. On virtual
// machines it shows whether two cores are at times the two threads of one physical core (below about 60 ns):
// small-message figures of such moments are not comparable with others. WINDOWS: how many (default 50, about 6 ms
// each).
#include <atomic>
#include <thread>

#include "common.h"

namespace {
struct alignas(128) Flag {
  std::atomic<uint64_t> value{0};
};
Flag ping, pong;
}  // namespace

int main() {
  const uint64_t windows = peers::FromEnv("WINDOWS", 50), turns = 20000;
  std::thread answerer([&] {
    peers::PinTo(1);
    for (uint64_t i = 1; i <= windows * turns; ++i) {
      while (ping.value.load(std::memory_order_acquire) != i) {
      }
      pong.value.store(i, std::memory_order_release);
    }
  });
  peers::PinTo(0);
  std::vector<double> nanos;
  uint64_t i = 0;
  for (uint64_t w = 0; w < windows; ++w) {
    const double start = peers::NowMicros();
    for (uint64_t k = 0; k < turns; ++k) {
      ping.value.store(++i, std::memory_order_release);
      while (pong.value.load(std::memory_order_acquire) != i) {
      }
    }
    nanos.push_back((peers::NowMicros() - start) / turns / 2 * 1000);
  }
  answerer.join();
  std::sort(nanos.begin(), nanos.end());
  std::printf("%.0f,%.0f,%.0f\n", nanos.front(), nanos[windows / 2], nanos.back());
}
