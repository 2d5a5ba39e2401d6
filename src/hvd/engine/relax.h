// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a thread does between two looks at memory that another core is about to write.

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hvd::engine {

// About.
inline constexpr int kSpinsPerMicrosecond = 20;

inline void Relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hvd::engine
