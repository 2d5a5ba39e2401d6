// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reducescatter of large data through shared memory: part m of the run is reduced over all members, in member order, by
// member m alone, who keeps the result.
//
// round    In round r every member makes piece r of every part readable, side by side in one chunk, and reduces its
//          own. Parts differ by at most one row, so all members work in every round.
//
// Cost: each member reads its part of all inputs: n bytes in all. A private input is copied once into its staging ring.

#include "hvd/base/types.h"
#include "hvd/collective/machine.h"
#include "hvd/collective/pattern/parts.h"
#include "hvd/collective/window/position_view.h"

namespace hvd::collective::window {

// All of this member's part at once, where every member's data is direct. Publishes and returns the number of rounds.
size_t ScatterDirect(PositionView& view, ReduceOp op, DType type, kernel::Scale scale,
                     const std::vector<size_t>& part_bytes, std::byte* to);

class ChunkedScatter final : public Machine {
 public:
  // `part_bytes`: of every member, together the payload. `to`: this member's result; nullptr: not wanted. `payload`
  // stays the caller's until kDone. `reduced`: so many rounds of this member's part were reduced and published before.
  ChunkedScatter(PositionView view, ReduceOp op, DType type, kernel::Scale scale, const std::vector<size_t>& part_bytes,
                 std::byte* to, const Payload* payload, size_t reduced = 0);

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override;
  int Damaged() const override { return view_.FirstDamagedCounter(); }

 private:
  bool StageRound();
  bool ReduceRound();

  PositionView view_;
  const ReduceOp op_;
  const DType type_;
  const kernel::Scale scale_;
  const pattern::Parts parts_;
  std::byte* const to_;
  const Payload* payload_;
  size_t staged_count_ = 0;
  size_t reduced_count_;
  std::vector<uint64_t> in_seen_;
  std::vector<uint64_t> out_seen_;
  std::vector<const void*> sources_;
};

}  // namespace hvd::collective::window
