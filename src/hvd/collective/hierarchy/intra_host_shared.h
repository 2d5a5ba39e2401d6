// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several members on this host, who meet in shared memory.

#include "hvd/collective/hierarchy/intra_host.h"
#include "hvd/collective/window/position_view.h"

namespace hvd::collective::hierarchy {

class IntraHostShared final : public IntraHost {
 public:
  // All marks of the position are there, and each has its data in the arena.
  explicit IntraHostShared(window::PositionView view) : view_(view) {}

  int members() const override { return view_.members(); }
  int me() const override { return view_.me(); }
  size_t chunk_bytes() const override { return view_.staging.chunk_bytes; }
  bool copied_in() const override { return IsCopiedIn(me()); }
  bool copied_out() const override { return !window::IsStoredOut(view_.place(me()).location); }
  size_t depth() const override { return view_.staging.depth; }
  std::byte* Source(int member, size_t chunk) const override { return view_.Source(member, chunk); }
  std::byte* Target(int member, size_t chunk) const override { return view_.Target(member, chunk); }
  // Data that is not copied in is readable as soon as its mark is.
  uint64_t In(int member) const override { return IsCopiedIn(member) ? view_.In(member) : UINT64_MAX; }
  uint64_t Out(int member) const override { return view_.Out(member); }
  int Damaged() const override { return view_.FirstDamagedCounter(); }
  void PublishIn(uint64_t chunks) override { view_.PublishIn(chunks); }
  void PublishOut(uint64_t chunks) override { view_.PublishOut(chunks); }

 private:
  bool IsCopiedIn(int member) const { return window::IsCopiedIn(view_.place(member).location); }

  window::PositionView view_;
};

}  // namespace hvd::collective::hierarchy
