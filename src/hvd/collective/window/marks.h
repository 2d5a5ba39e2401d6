// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether what peers wrote into their marks can be used: a peer that went wrong must end in an error here, and not in a
// read or a store outside of its memory.
//
// Thread safety: as PositionView.

#include <cstddef>
#include <vector>

#include "hvd/collective/machine.h"
#include "hvd/collective/window/position_view.h"

namespace hvd::collective::window {

// What a member's mark must have room for.
struct Needed {
  size_t in = 0;   // bytes that others read
  size_t out = 0;  // bytes that others store
};

// Reads a member's mark, the only time that an operation does. Returns whether it can be used: it is intact and has a
// known location, whose offsets and all bytes behind them are inside the member's memory.
bool ReadPlace(const PositionView& view, int member, const Needed& needed, Place* place);

// A member whose mark in a position's slot is not what it has put there, now or for an earlier position; -1: none is
// seen.
int FirstDamaged(const MarkStream& stream, uint64_t position);

// An operation that cannot begin, because a member's mark cannot be used.
class BadMark final : public Machine {
 public:
  // `named`: the member's number in the process set.
  BadMark(const PositionView& view, int member, int named)
      : pid_(view.window->pid(view.locals[member])), member_(named) {}

  Progress Step() override { return Progress::kFailed; }
  void CollectAwaited(std::vector<int>* members) const override { members->push_back(member_); }
  Error error() const override;
  int at_fault() const override { return member_; }

 private:
  const int pid_;
  const int member_;
};

}  // namespace hvd::collective::window
