// SPDX-License-Identifier: Apache-2.0
#pragma once
// A clock that costs a few nanoseconds to read: the processor's counter where it runs evenly on all cores, else the
// monotonic clock. Ticks mean nothing by themselves; a TickScale turns them into nanoseconds of the monotonic clock
// when somebody asks, which is seldom.
//
// Thread safety: everything, in signal handlers too.

#include <time.h>

#include <cstdint>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace hvd::trace {

inline int64_t ClockNanos(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

class TickScale {
 public:
  TickScale() : counter_(HasCounter()), first_(Read()) {}

  uint64_t Now() const {
#if defined(__x86_64__)
    if (counter_) return __rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    asm volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#endif
    return static_cast<uint64_t>(ClockNanos(CLOCK_MONOTONIC));
  }

  // Both clocks, read together.
  struct Pair {
    uint64_t ticks;
    int64_t nanos;
  };
  Pair Read() const {
    const int64_t nanos = ClockNanos(CLOCK_MONOTONIC);
    return {Now(), nanos};
  }

  // Nanoseconds of the monotonic clock at `ticks`, given a pair that was read lately.
  int64_t ToNanos(uint64_t ticks, const Pair& last) const {
    // From the near end: what happened lately is the most exact.
    const auto back = static_cast<double>(static_cast<int64_t>(last.ticks - ticks));
    return last.nanos - static_cast<int64_t>(back * NanosPerTick(last));
  }
  // A sum of spans.
  double ToSeconds(uint64_t ticks, const Pair& last) const {
    return static_cast<double>(ticks) * NanosPerTick(last) * 1e-9;
  }
  double SecondsSinceFirst(const Pair& last) const { return static_cast<double>(last.nanos - first_.nanos) * 1e-9; }

 private:
  double NanosPerTick(const Pair& last) const {
    const auto span = static_cast<double>(static_cast<int64_t>(last.ticks - first_.ticks));
    return span <= 0 ? 0 : static_cast<double>(last.nanos - first_.nanos) / span;
  }
  static bool HasCounter() {
#if defined(__x86_64__)
    // "Invariant": the same rate on all cores, asleep or not.
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#else
    return true;
#endif
  }

  const bool counter_;
  const Pair first_;
};

}  // namespace hvd::trace
