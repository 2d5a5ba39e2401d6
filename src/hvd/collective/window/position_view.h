// SPDX-License-Identifier: Apache-2.0
#pragma once
// One position of a stream at which all members have put their marks: who brings what, and where it is mapped here.
//
// Marks are read once, see ReadPlace in marks.h. What they say afterwards counts for nothing.

#include <cstdint>
#include <span>
#include <vector>

#include "hvd/collective/payload.h"
#include "hvd/collective/window/mark_stream.h"
#include "hvd/kernel/kernel.h"
#include "hvd/transport/window.h"

namespace hvd::collective::window {

// How large data travels through staging areas: rings of `depth` chunks.
struct Staging {
  size_t chunk_bytes = 64 << 10;
  int depth = 4;
  size_t bytes() const { return chunk_bytes * depth; }
};

// Where a member's data and result are, by its mark.
struct Place {
  DataLocation location = DataLocation::kNothing;
  std::byte* source = nullptr;  // its first chunk; nullptr: it brings no data
  std::byte* target = nullptr;  // the first chunk of its result
  uint64_t address = 0;         // Header::address
};

struct PositionView {
  const MarkStream* stream = nullptr;
  transport::Window* window = nullptr;
  std::span<const int> locals;  // window index of each member
  uint64_t position = 0;
  Staging staging;
  std::span<const Place> places;  // by member
  // No counter of this position gets beyond it. One that is beyond is damaged, and counts as not begun.
  uint64_t most_chunks = MarkStream::kMostChunks;

  int members() const { return stream->members(); }
  int me() const { return stream->me(); }
  const Place& place(int member) const { return places[static_cast<size_t>(member)]; }
  Counters& counters(int member) const { return stream->counters(member, position); }

  // Where chunk `chunk` of a member's data can be read, and where its result goes.
  std::byte* Source(int member, size_t chunk) const { return place(member).source + Offset(member, chunk); }
  std::byte* Target(int member, size_t chunk) const { return place(member).target + Offset(member, chunk); }

  // Chunks that a member's `in` (`out`) counter has reached at this position.
  uint64_t In(int member) const { return Reached(counters(member).in); }
  uint64_t Out(int member) const { return Reached(counters(member).out); }
  // Whether all members' counters have reached `wanted`. `seen` has what was read of each before, and is read again
  // only where that is not enough.
  bool AllIn(std::vector<uint64_t>* seen, uint64_t wanted) const { return All(&Counters::in, seen, wanted); }
  bool AllOut(std::vector<uint64_t>* seen, uint64_t wanted) const { return All(&Counters::out, seen, wanted); }
  // A member one of whose counters is damaged; -1: none is seen.
  int FirstDamagedCounter() const;
  // Publishes this rank's counters, and wakes who sleeps.
  void PublishIn(uint64_t chunks) { Publish(counters(me()).in, chunks); }
  void PublishOut(uint64_t chunks) { Publish(counters(me()).out, chunks); }

 private:
  size_t Offset(int member, size_t chunk) const {
    const DataLocation location = place(member).location;
    if (IsBesideMark(location)) return 0;
    return (location == DataLocation::kStaged ? chunk % static_cast<size_t>(staging.depth) : chunk) *
           staging.chunk_bytes;
  }
  uint64_t Reached(const std::atomic<uint64_t>& counter) const {
    // That of an earlier position is smaller than any of this one, so the difference is beyond all limits.
    const uint64_t chunks = counter.load(std::memory_order_acquire) - MarkStream::Count(position, 0);
    return chunks <= most_chunks ? chunks : 0;
  }
  bool All(std::atomic<uint64_t> Counters::*counter, std::vector<uint64_t>* seen, uint64_t wanted) const {
    for (int m = 0; m < members(); ++m) {
      if ((*seen)[m] >= wanted) continue;
      (*seen)[m] = Reached(counters(m).*counter);
      if ((*seen)[m] < wanted) return false;
    }
    return true;
  }
  void Publish(std::atomic<uint64_t>& counter, uint64_t chunks) {
    counter.store(MarkStream::Count(position, chunks), std::memory_order_release);
    window->RingAll();
  }
};

// Whether all members' data is direct.
bool IsDirect(const PositionView& view);

// Whether all data can be read where it is, by everybody, and some of that is in no arena: then nobody copies anything
// in. For operations that tell it in their marks: see Header::address.
bool IsCma(const PositionView& view);

}  // namespace hvd::collective::window
