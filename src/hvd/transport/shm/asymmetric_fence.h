// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fence that one side pays for both. Two sides that each store one word and then read the other's need a full fence
// each, and on the side that does this a million times a second that is most of the cost. AsymmetricFence() makes every
// thread of every registered process pass a full fence; whoever knows that the other side calls it needs none.
//
// Thread safety: everything.

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hvd::transport::shm {

// Registers this process. False: the kernel has no such thing, or may not be asked.
inline bool RegisterForHeavyFences() {
#if defined(__SANITIZE_THREAD__)
  return false;  // it sees fences in the code only
#else
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
         ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
#endif
}

inline void AsymmetricFence() { ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0); }

}  // namespace hvd::transport::shm
