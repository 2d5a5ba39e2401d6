// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allreduce of large data through shared memory.
//
// The run is cut into chunks. For every chunk: each member makes it readable (its tensor is in the arena already, or it
// is copied into a staging ring); member m reduces slice m of the chunk over all members in member order and stores the
// result to all members; when all have, it is copied out of the ring (nothing to do for arena memory). Where everything
// is direct, there is no ring to go round: member m has slice m of the whole run, and each chunk is a part of that.
// In one piece, that is faster.
//
// Cost: arena: 2 bytes moved per payload byte and member, the physical limit; two flags per chunk. Staged: one copy in
// and one out on top. The sum of an element is formed once, by one member, in member order: equal bits everywhere.

#include "hvd/base/types.h"
#include "hvd/collective/machine.h"
#include "hvd/collective/window/position_view.h"

namespace hvd::collective::window {

// This member's part of chunk `chunk` of `bytes`: reduces its slice and stores it to all. Every member's chunk is
// readable.
void ReduceSlice(const PositionView& view, ReduceOp op, DType type, kernel::Scale scale, size_t bytes, size_t chunk,
                 kernel::Stores stores = kernel::Stores::kPlain);

class ChunkedReduce final : public Machine {
 public:
  // `payload` stays the caller's until kDone. Chunks that this member has staged already are not staged again.
  // `reduced`: its part of so many chunks was reduced and published before.
  ChunkedReduce(PositionView view, ReduceOp op, DType type, kernel::Scale scale, const Payload* payload,
                size_t reduced = 0, kernel::Stores stores = kernel::Stores::kPlain);

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override;
  int Damaged() const override { return view_.FirstDamagedCounter(); }

 private:
  bool StageChunk();
  bool ReduceChunk();
  bool FinishChunk();

  PositionView view_;
  const ReduceOp op_;
  const DType type_;
  const kernel::Scale scale_;
  const kernel::Stores stores_;
  const Payload* payload_;
  const size_t chunks_;
  const DataLocation location_;  // of this rank's data
  size_t staged_count_ = 0;
  size_t reduced_count_;
  size_t finished_count_ = 0;
  std::vector<uint64_t> in_seen_;
  std::vector<uint64_t> out_seen_;
};

}  // namespace hvd::collective::window
