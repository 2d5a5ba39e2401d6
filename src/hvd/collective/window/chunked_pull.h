// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allgather, broadcast and alltoall of large data through shared memory: sources make chunks readable, everybody copies
// out what is for it.
//
// source   a member that brings data: all of them (allgather, alltoall) or the root (broadcast).
// round    round c moves chunk c of every source that has one.
//
// Cost: one copy out of the wanted bytes of every source per reader; a private source is copied once into its staging
// ring besides.

#include "hvd/collective/machine.h"
#include "hvd/collective/pattern/slices.h"
#include "hvd/collective/window/position_view.h"

namespace hvd::collective::window {

class ChunkedPull final : public Machine {
 public:
  struct Source {
    int member = 0;
    size_t bytes = 0;         // that it makes readable
    pattern::Range wanted;    // of them, by this rank
    std::byte* to = nullptr;  // where this rank wants them; nullptr: not wanted
  };
  // `payload` (this rank's own data, if it is a source) stays the caller's until kDone.
  ChunkedPull(PositionView view, std::vector<Source> sources, const Payload* payload);

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override;
  int Damaged() const override { return view_.FirstDamagedCounter(); }

 private:
  bool StageChunk();
  bool PullRound();
  size_t ChunksOf(const Source& source) const;

  PositionView view_;
  std::vector<Source> sources_;
  const Payload* payload_;
  size_t rounds_ = 0;
  size_t my_bytes_ = 0;
  size_t my_chunks_ = 0;
  size_t staged_count_ = 0;
  size_t pulled_count_ = 0;
  std::vector<uint64_t> in_seen_;
  std::vector<uint64_t> out_seen_;
};

}  // namespace hvd::collective::window
