// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that will be written soon, and that another core may have: asks for its line, and does not wait.

namespace hvd {

inline void PrefetchForWrite(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));  // does nothing where it is not known
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace hvd
