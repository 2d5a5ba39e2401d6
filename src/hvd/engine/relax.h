// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a thread does between two looks at memory that another core is about to write.
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hvd::engine {

// Approximate number of poll iterations per microsecond.
inline constexpr int kSpinsPerMicrosecond = 20;

// With more ranks than cores a thread gives its core away some times before it sleeps. Where other programs take the
// core, each time can last for dozens of milliseconds, so the time is limited, too: only a thread that sleeps looks at
// time-outs and stalls.
inline constexpr std::chrono::milliseconds kLongestYielding{5};

inline void Relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hvd::engine
