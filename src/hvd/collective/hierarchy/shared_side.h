// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several members on this host, who meet in shared memory.

#include "hvd/collective/hierarchy/host_side.h"
#include "hvd/collective/window/meeting.h"

namespace hvd::collective::hierarchy {

class SharedSide final : public HostSide {
 public:
  // All marks of the meeting are there, and each has its data in the arena.
  explicit SharedSide(window::Meeting meeting) : meeting_(meeting) {}

  int members() const override { return meeting_.members(); }
  int me() const override { return meeting_.me(); }
  size_t chunk_bytes() const override { return meeting_.staging.chunk_bytes; }
  bool copied_in() const override { return IsCopiedIn(me()); }
  bool copied_out() const override { return !window::IsStoredOut(meeting_.header(me()).place); }
  size_t depth() const override { return meeting_.staging.depth; }
  std::byte* Source(int member, size_t chunk) const override { return meeting_.Source(member, chunk); }
  std::byte* Target(int member, size_t chunk) const override { return meeting_.Target(member, chunk); }
  // What is not copied in is readable as soon as its mark is.
  uint64_t In(int member) const override { return IsCopiedIn(member) ? meeting_.In(member) : UINT64_MAX; }
  uint64_t Out(int member) const override { return meeting_.Out(member); }
  void PublishIn(uint64_t chunks) override { meeting_.PublishIn(chunks); }
  void PublishOut(uint64_t chunks) override { meeting_.PublishOut(chunks); }

 private:
  bool IsCopiedIn(int member) const { return window::IsCopiedIn(meeting_.header(member).place); }

  window::Meeting meeting_;
};

}  // namespace hvd::collective::hierarchy
