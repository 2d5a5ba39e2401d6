// SPDX-License-Identifier: Apache-2.0
#pragma once
// Internal to kernel and its tests: which of two loops copies, the C library's or the one of the instruction set. The C
// library's is the best one on many processors. On others its string instructions are several times slower if source
// and destination lie differently relative to a cache line, as blocks of malloc and of shared memory do. So large
// copies are timed once per process, by size and by alignment.
//
// Thread safety: constant once built.

#include <array>
#include <cstddef>

#include "hvd/kernel/dispatch.h"

namespace hvd::kernel {

// Shorter copies take the C library's loop: it uses no string instructions for them.
inline constexpr size_t kLeastTimedCopy = 2 << 10;
// From here on copies have a choice of their own, because they do not stay in the first-level cache.
inline constexpr size_t kLongCopy = 32 << 10;

class CopyMethods {
 public:
  // Times both loops, in less than a millisecond.
  explicit CopyMethods(const Table& table);

  // For at least kLeastTimedCopy bytes.
  CopyFn For(const void* to, const void* from, size_t bytes) const {
    return by_[bytes >= kLongCopy][SameOffset(to, from)];
  }

 private:
  static bool SameOffset(const void* to, const void* from) {
    constexpr size_t kLine = 64;
    return (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % kLine == 0;
  }

  std::array<std::array<CopyFn, 2>, 2> by_;  // [long][same offset in a line]
};

}  // namespace hvd::kernel
