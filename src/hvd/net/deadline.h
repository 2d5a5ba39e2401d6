// SPDX-License-Identifier: Apache-2.0
#pragma once
// Deadlines of blocking helpers, in real time.

#include <algorithm>
#include <chrono>
#include <climits>

#include "hvd/base/clock.h"

namespace hvd::net {

inline Time Now() { return std::chrono::steady_clock::now(); }

// Saturates, so that Duration::max() means "never".
inline Time DeadlineAfter(Duration timeout) {
  const Time now = Now();
  return timeout > Time::max() - now ? Time::max() : now + timeout;
}

inline Duration Left(Time deadline) { return std::max(Duration::zero(), deadline - Now()); }

// For poll(2): rounded up, so that a wait never ends just before its deadline and spins.
inline int PollMillis(Time deadline) {
  if (deadline == Time::max()) return -1;
  const auto millis = std::chrono::ceil<std::chrono::milliseconds>(Left(deadline)).count();
  return static_cast<int>(std::min<int64_t>(millis, INT_MAX));
}

inline double InSeconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace hvd::net
