// SPDX-License-Identifier: Apache-2.0
#pragma once
// A stream: numbered positions in shared memory at which the members of a process set (all on one host) meet.
//
// slot      A member's memory for one position; positions take a member's kSlots slots in turn. Written by that member
//           alone.
// mark      Says that the header below it is complete for (epoch, position). Written last; 0 while the header changes.
// check     Follows from mark and header, so that a reader notices words that its member did not write.
// echo      The mark once more, written before it: a mark that is neither 0 nor its echo is damaged, and who waits for
//           another one waits in vain.
// location  Where the member's data is: beside the mark (inline), in its arena (direct), or in a staging area of its
//           arena.
// counters  `in` and `out`: how many chunks a member has made readable, and how many it has finished. They carry the
//           position in their upper bits, so an old value is always smaller than any new one and nothing is ever reset.
// released  All positions below it are finished by that member: their slots may be written again.
//
// Thread safety: one writer per member (its token holder), any number of readers.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace hvd::collective::window {

enum class DataLocation : uint32_t {
  kNothing = 0,  // this member brings no data
  kTiny = 1,     // in the header itself
  kInline = 2,   // in the slot's payload
  kDirect = 3,   // in the arena, for reading at `in_offset`, for the result at `out_offset`
  kStaged = 4,   // chunk by chunk in a ring in the arena at `in_offset`
  kCopied = 5,   // chunk by chunk in the arena at `out_offset`, where the result goes
};

inline constexpr size_t kTinyBytes = 32;

// Whether whoever sees the mark has all of the member's data.
inline bool IsBesideMark(DataLocation location) { return location <= DataLocation::kInline; }
// How much of it there can be.
inline size_t RoomBesideMark(DataLocation location, size_t payload_bytes) {
  return location == DataLocation::kInline ? payload_bytes : location == DataLocation::kTiny ? kTinyBytes : 0;
}
// Whether the member makes its data readable chunk by chunk, and says so by `in`.
inline bool IsCopiedIn(DataLocation location) { return location >= DataLocation::kStaged; }
// Whether the result is stored to where the member wants it.
inline bool IsStoredOut(DataLocation location) {
  return location == DataLocation::kDirect || location == DataLocation::kCopied;
}

// One word of shared memory, read once: the compiler must not read it again where it is used.
template <typename T>
T ReadOnce(const T& word) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(std::memory_order_relaxed);
}

struct alignas(64) Header {
  Header() = default;
  // A private copy of one in shared memory, where a rank that went wrong may change it at any time.
  Header(const Header& shared)
      : mark(shared.mark.load(std::memory_order_relaxed)),
        uid(ReadOnce(shared.uid)),
        first_dim(ReadOnce(shared.first_dim)),
        location(ReadOnce(shared.location)),
        check(ReadOnce(shared.check)) {
    for (size_t i = 0; i < std::size(words); ++i) words[i] = ReadOnce(shared.words[i]);
  }
  Header& operator=(const Header&) = delete;

  std::atomic<uint64_t> mark;
  uint64_t uid;
  int64_t first_dim;
  DataLocation location;
  uint32_t check;
  union {
    struct {
      uint64_t in_offset;
      uint64_t out_offset;
      // Not 0: this member can fetch what is in the others' own memory; of its own staged data, where that is.
      uint64_t address;
    };
    std::byte tiny[kTinyBytes];
    uint64_t words[kTinyBytes / sizeof(uint64_t)];
  };

  // The check word for this header under a mark. Each word counts by itself, so that the sums do not wait for each
  // other.
  uint32_t CheckFor(uint64_t value) const {
    uint64_t sum = (value ^ 0x6a09e667f3bcc908) * 0x9e3779b97f4a7c15;
    sum += (uid ^ 0xbb67ae8584caa73b) * 0xbf58476d1ce4e5b9;
    sum += (static_cast<uint64_t>(first_dim) ^ 0x3c6ef372fe94f82b) * 0x94d049bb133111eb;
    sum += (static_cast<uint64_t>(location) ^ 0xa54ff53a5f1d36f1) * 0xd6e8feb86659fd93;
    sum += words[0] * 0xff51afd7ed558ccd + words[1] * 0xc4ceb9fe1a85ec53;
    sum += words[2] * 0x9fb21c651e98df25 + words[3] * 0xd1342543de82ef95;
    return static_cast<uint32_t>(sum ^ (sum >> 32));
  }
  bool IsIntact() const { return check == CheckFor(mark.load(std::memory_order_relaxed)); }
};
static_assert(sizeof(Header) == 64);

struct alignas(128) Counters {
  std::atomic<uint64_t> in;
  std::atomic<uint64_t> out;
  std::atomic<uint64_t> echo;
};

class MarkStream {
 public:
  static constexpr int kSlots = 16;

  // Memory that a stream of so many members needs.
  static size_t Bytes(int members, size_t payload_bytes);

  MarkStream() = default;
  MarkStream(std::byte* memory, int members, int me, size_t payload_bytes);

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
  // The most chunks that a counter has room for.
  static constexpr uint64_t kMostChunks = (uint64_t{1} << 24) - 1;
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
