// SPDX-License-Identifier: Apache-2.0
#pragma once
// A stream of positions at which each member of a process set puts a mark: what it wants done next, with its data.
// Equal marks of all members at a position are the agreement. engine/process_set/process_set.h has the rules of epochs.
//
// Thread safety: call with the progress token.

#include <cstdint>
#include <memory>
#include <vector>

#include "hvd/collective/machine.h"
#include "hvd/comm/communicator.h"

namespace hvd::comm {

class Announcer {
 public:
  virtual ~Announcer() = default;

  enum class Outcome {
    kPublished,
    kBusy,       // the slot or the staging area of this position is still in use; try again when something moved
    kExhausted,  // no memory for a staging area
  };
  // Puts this member's mark. uid 0 says "not this way": it agrees with nothing.
  virtual Outcome Publish(uint64_t epoch, uint64_t position, uint64_t uid, int64_t first_dim, const Work& work) = 0;
  // A member whose mark is not there yet; -1 if all are.
  virtual int Missing(uint64_t epoch, uint64_t position) const = 0;
  // Adds all such members.
  virtual void CollectMissing(uint64_t epoch, uint64_t position, std::vector<int>* members) const = 0;
  // Adds the members that have released less than this one: they hold slots that it may want to use again.
  virtual void CollectHolders(std::vector<int>* members) const = 0;
  // A member whose mark is damaged, so that waiting for it, or believing it, is wrong; -1: none is seen.
  virtual int Damaged(uint64_t /*epoch*/, uint64_t /*position*/) const { return -1; }
  // All marks are there: whether they name the same plan.
  virtual bool Agreed(uint64_t position) const = 0;
  virtual int64_t FirstDim(int member, uint64_t position) const = 0;
  // All marks are there and agree: moves the data. nullptr: already finished (data beside the marks).
  virtual std::unique_ptr<collective::Machine> Begin(uint64_t position, const Work* work) = 0;
  // The epoch ended: marks from `position` on count for nobody, and will be published anew in the next one.
  virtual void Withdraw(uint64_t position) = 0;
  // This member is finished with the position, in whichever way.
  virtual void Release(uint64_t position) = 0;
};

}  // namespace hvd::comm
