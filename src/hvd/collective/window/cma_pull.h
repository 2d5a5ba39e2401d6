// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allgather, broadcast and alltoall of large data that nobody copies in: what is in the arena is copied from where it
// is mapped, and the rest is read out of its owner's memory (Window::ReadPeer).
//
// out   1: this member has all that it wants
//
// Cost: one copy of the wanted bytes of every source per reader, and the kernel's work for the pages that it reads.

#include <vector>

#include "hvd/collective/machine.h"
#include "hvd/collective/window/chunked_pull.h"
#include "hvd/collective/window/position_view.h"

namespace hvd::collective::window {

class CmaPull final : public Machine {
 public:
  // `own`: this member's data, if it brings any.
  CmaPull(PositionView view, std::vector<ChunkedPull::Source> sources, const std::byte* own);

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override;
  int Damaged() const override { return view_.FirstDamagedCounter(); }
  Error error() const override;

 private:
  void FetchPiece();
  // 0, or errno.
  int Fetch(int member, size_t begin, size_t bytes, std::byte* to);

  PositionView view_;
  std::vector<ChunkedPull::Source> sources_;
  const std::byte* const own_;
  size_t source_ = 0;   // the member that is being read
  size_t fetched_ = 0;  // bytes of it
  int error_ = 0;       // errno of the last piece
  bool brings_ = false;
  bool published_ = false;
  std::vector<uint64_t> out_seen_;
};

}  // namespace hvd::collective::window
