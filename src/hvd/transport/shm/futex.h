// SPDX-License-Identifier: Apache-2.0
#pragma once
// Raw futex calls on words in shared memory. All are async-signal-safe.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

namespace hvd::transport::shm {

using FutexWord = std::atomic<uint32_t>;
static_assert(sizeof(FutexWord) == 4 && FutexWord::is_always_lock_free);

// Wakes every thread of any process that waits on the word.
inline void FutexWakeAll(FutexWord* word) { ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

// Returns when woken, when the word is not `expected`, or when a signal came.
inline void FutexWait(FutexWord* word, uint32_t expected) {
  ::syscall(SYS_futex, word, FUTEX_WAIT, expected, nullptr, nullptr, 0);
}

// As linux/futex.h has it since 5.16; spelled out for older headers.
struct FutexWaiter {
  uint64_t value;
  uint64_t address;
  uint32_t flags;
  uint32_t reserved;
};
inline constexpr uint32_t kFutexWaiter32 = 2;  // FUTEX_32: a shared word of 32 bits
inline constexpr size_t kMaxFutexWaiters = 128;
inline constexpr long kSysFutexWaitv = 449;  // the same on every architecture

// Waits on all of them; 0 or an errno value. ENOSYS and EPERM: this kernel or this sandbox does not have it.
inline int FutexWaitAny(const FutexWaiter* waiters, size_t count) {
  const long rc = ::syscall(kSysFutexWaitv, waiters, count, 0, nullptr, 0);
  return rc >= 0 ? 0 : errno;
}

}  // namespace hvd::transport::shm
