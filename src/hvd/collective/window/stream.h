// SPDX-License-Identifier: Apache-2.0
#pragma once
// A stream: numbered positions in shared memory at which the members of a process set (all on one host) meet.
//
// slot      a member's memory for one position; positions take a member's kSlots slots in turn. Written by that member
// alone. mark      tells that the header below it is complete for (epoch, position). Written last. place     where the
// member's data is: beside the mark (inline), in its arena (direct), or in a staging area of its arena. counters  `in`
// and `out`: how many chunks a member has made readable, and how many it has finished. They carry the
//           position in their upper bits, so an old value is always smaller than any new one and nothing is ever reset.
// released  all positions below it are finished by that member: their slots may be written again.
//
// Thread safety: one writer per member (its token holder), any number of readers.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hvd::collective::window {

enum class Place : uint32_t {
  kNothing = 0,  // this member brings no data
  kTiny = 1,     // in the header itself
  kInline = 2,   // in the slot's payload
  kDirect = 3,   // in the arena, for reading at `in_offset`, for the result at `out_offset`
  kStaged = 4,   // chunk by chunk in a ring in the arena at `in_offset`
  kCopied = 5,   // chunk by chunk in the arena at `out_offset`, where the result goes
};

// Whether whoever sees the mark has all of the member's data.
inline bool IsBesideMark(Place place) { return place <= Place::kInline; }
// Whether the member makes its data readable chunk by chunk, and says so by `in`.
inline bool IsCopiedIn(Place place) { return place >= Place::kStaged; }
// Whether the result is stored to where the member wants it.
inline bool IsStoredOut(Place place) { return place == Place::kDirect || place == Place::kCopied; }

inline constexpr size_t kTinyBytes = 32;

struct alignas(64) Header {
  std::atomic<uint64_t> mark;
  uint64_t uid;
  int64_t first_dim;
  Place place;
  uint32_t reserved;
  union {
    struct {
      uint64_t in_offset;
      uint64_t out_offset;
      // Not 0: this member can fetch what is in the others' own memory; of its own staged data, where that is.
      uint64_t address;
    };
    std::byte tiny[kTinyBytes];
  };
};
static_assert(sizeof(Header) == 64);

struct alignas(128) Counters {
  std::atomic<uint64_t> in;
  std::atomic<uint64_t> out;
};

class Stream {
 public:
  static constexpr int kSlots = 16;

  // Memory that a stream of so many members needs.
  static size_t Bytes(int members, size_t payload_bytes);

  Stream() = default;
  Stream(std::byte* memory, int members, int me, size_t payload_bytes);

  int members() const { return members_; }
  int me() const { return me_; }
  size_t payload_bytes() const { return payload_bytes_; }

  Header& header(int member, uint64_t position) const { return *reinterpret_cast<Header*>(Slot(member, position)); }
  Counters& counters(int member, uint64_t position) const {
    return *reinterpret_cast<Counters*>(Slot(member, position) + 128);
  }
  std::byte* payload(int member, uint64_t position) const { return Slot(member, position) + kSlotHead; }
  std::atomic<uint64_t>& released(int member) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(memory_ + member_bytes_ * member);
  }

  static uint64_t Mark(uint64_t epoch, uint64_t position) { return (epoch << 40) | (position + 1); }
  static uint64_t Count(uint64_t position, uint64_t chunks) { return ((position + 1) << 24) | chunks; }

 private:
  static constexpr size_t kMemberHead = 128;
  static constexpr size_t kSlotHead = 256;

  std::byte* Slot(int member, uint64_t position) const {
    return memory_ + member_bytes_ * member + kMemberHead + slot_bytes_ * (position % kSlots);
  }

  std::byte* memory_ = nullptr;
  int members_ = 0;
  int me_ = 0;
  size_t payload_bytes_ = 0;
  size_t slot_bytes_ = 0;
  size_t member_bytes_ = 0;
};

}  // namespace hvd::collective::window
