// SPDX-License-Identifier: Apache-2.0
#pragma once
// A collective in flight on this rank: a machine that is stepped, never waits inside a step, and does at most about 1
// MiB of work per step, so that many are in flight at once and none starves another.
//
// Thread safety: call with the progress token.

#include <vector>

#include "hvd/base/result.h"
#include "hvd/base/types.h"

namespace hvd::collective {

enum class Progress {
  kWaiting,  // nothing to do until a peer moves
  kMoved,    // did something, call again
  kDone,     // finished: no peer reads or writes this rank's buffers any more
  kFailed,   // see error()
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual Progress Step() = 0;
  // Adds the member indexes of all peers that this machine waits for, now. All of them: who waits for a dead peer is
  // itself waited for by others, and must not hide it.
  virtual void CollectAwaited(std::vector<int>* members) const = 0;
  // A member whose part of shared memory is damaged, so that waiting for it is in vain; -1: none is seen.
  virtual int Damaged() const { return -1; }
  virtual Error error() const { return Error{}; }
  // The member index of the peer whose fault that is; -1 if it is nobody's.
  virtual int at_fault() const { return -1; }
};

}  // namespace hvd::collective
