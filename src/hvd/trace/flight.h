// SPDX-License-Identifier: Apache-2.0
#pragma once
// The flight recorder: what this rank's last operations were and how far each got, kept in memory at all times and
// written to a file when something is wrong. `python -m horovod.flight` compares the files of all ranks.
//
// A ring of fixed entries, one per operation and one cache line each: how far it got and when. What the operation is
// (its name, shape, ...) stands in a table of descriptions, because a job does the same operations again and again:
// only one that is new, or that the table is about to lose, is written there. What few operations have, such as a
// failure, stands in a third place. All words are atomics: a dump reads them while others write. The `seq` of an entry
// is 2n+1 while operation n is being entered and 2n+2 afterwards, so that a dump recognises entries that were
// half-written or replaced under its eyes, and leaves them out; descriptions have one, too.
//
// Thread safety: Submit, Mark... and SetMissing one after the other, from any thread. Dump from any thread,
// DumpFromSignal from anywhere at all; of several dumps at once, one is made.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/trace/dump_file.h"
#include "hvd/trace/ticks.h"

namespace hvd::trace {

class LineWriter;

enum class FlightState : uint8_t {
  kSubmitted,
  kSent,     // announced to the peers, or told to the sequencer
  kAgreed,   // all members want it; waits for memory or for its turn
  kRunning,  // data moves
  kDone,
  kFailed,
};

struct FlightOp {
  int set = 0;
  std::string_view name;  // of long ones both ends are kept, 64 bytes together
  OpKind op = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce = ReduceOp::kSum;
  Rank root = -1;
  uint64_t bytes = 0;
  std::span<const int64_t> shape;  // the first 8 dimensions are kept
};

// An operation as other ranks are told of it.
struct FlightGlimpse {
  int set = 0;
  std::string name;  // as cut by the recorder
  OpKind op = OpKind::kAllreduce;
  FlightState state = FlightState::kSubmitted;
  int64_t submitted_ns_ago = 0;
  int64_t ended_ns_ago = -1;  // negative: not over
};

struct FlightOptions {
  Rank rank = 0;
  int size = 1;
  int generation = 0;
  std::string host;
  std::string folder;       // "": Dump does nothing and succeeds
  uint32_t entries = 1024;  // rounded up to a power of two
};

class FlightRecorder {
 public:
  // Names an operation; operations that are too old to be in the ring may still be named.
  using Id = uint64_t;
  // Names a description.
  using Known = uint64_t;
  static constexpr uint64_t kNone = ~uint64_t{0};
  // Longer names are cut.
  static constexpr size_t kNameBytes = 64;

  explicit FlightRecorder(FlightOptions options);
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // The clock of all times below.
  const TickScale& ticks() const { return ticks_; }

  // `known`: kNone, or what the last operation of this set and name was; the caller keeps it for the next one.
  Id Submit(const FlightOp& op, Known* known, uint64_t now);
  // kSent, kRunning, kDone.
  void Mark(Id id, FlightState state, uint64_t now) {
    if (Entry* entry = Find(id)) entry->Reach(state, now);
  }
  // `position` in the set's log, where there is one: equal on all members.
  void MarkAgreed(Id id, uint64_t position, uint64_t now) {
    Entry* entry = Find(id);
    if (entry == nullptr) return;
    entry->position.store(position + 1, std::memory_order_relaxed);
    entry->Reach(FlightState::kAgreed, now);
  }
  void MarkFailed(Id id, Code code, Rank at_fault, uint64_t now);
  // Whom it waits for, when that is found out; empty: nobody any more. The first 7 and the number are kept.
  void SetMissing(Id id, std::span<const Rank> ranks);

  // What the reader must know to compare ranks. The lines are kept up to 128 bytes per rank.
  void AddPeer(Rank rank, std::string_view host, int pid);
  void AddSet(int set, std::span<const Rank> ranks);

  // Writes FOLDER/flight.RANK.json, replacing an older one as a whole. `reason` is one word, then details if any:
  // "stall", "shutdown", "revoked: rank 2 was lost".
  Status Dump(std::string_view reason);
  // Returns what Dump would write, for DumpFile; empty without a folder, or while another dump is being made.
  std::string Snapshot(std::string_view reason);
  // For signal handlers: calls nothing but mkdir, getrandom, open, write, close, rename, unlink and clock_gettime.
  // Without a folder it writes one line to stderr that says so, but before a crash nothing.
  bool DumpFromSignal(std::string_view reason) noexcept;

  // The last operations, the newest first; at most that many.
  std::vector<FlightGlimpse> Recent(size_t most) const;
  // Nanoseconds since it was submitted; negative: it is no longer in the ring.
  int64_t AgeOf(Id id) const;

  const std::string& path() const { return path_; }

 private:
  static constexpr int kTimes = 5;  // kDone and kFailed share one
  static constexpr size_t kDims = 8;
  static constexpr size_t kMissing = 7;

  struct alignas(64) Entry {
    std::atomic<uint64_t> seq{0};
    std::atomic<uint64_t> state{0};                     // FlightState:8 description:56
    std::atomic<uint64_t> position{0};                  // plus 1
    std::array<std::atomic<uint64_t>, kTimes> times{};  // 0: not reached

    // The time goes first: a dump that sees the state sees its time.
    void Reach(FlightState to, uint64_t now) {
      const int slot = to == FlightState::kFailed ? kTimes - 1 : static_cast<int>(to);
      times[slot].store(now, std::memory_order_relaxed);
      const uint64_t description = state.load(std::memory_order_relaxed) & ~uint64_t{255};
      state.store(description | static_cast<uint64_t>(to), std::memory_order_release);
    }
  };
  static_assert(sizeof(Entry) == 64);

  struct alignas(32) Description {
    std::atomic<uint64_t> seq{0};
    std::atomic<uint64_t> what{0};  // set:32 op:8 dtype:8 reduce:8 dimensions:8
    std::atomic<uint64_t> more{0};  // root:32 length of the name:32
    std::atomic<uint64_t> bytes{0};
    std::array<std::atomic<uint64_t>, kDims> shape{};
    std::array<std::atomic<uint64_t>, kNameBytes / 8> name{};
  };

  // Beside an entry; stale unless `owner` is the entry's operation.
  struct alignas(64) Detail {
    std::atomic<uint64_t> owner{0};                                   // plus 1
    std::atomic<uint64_t> fault{0};                                   // Code:32 rank at fault:32
    std::array<std::atomic<uint64_t>, (kMissing + 1) / 2> missing{};  // two ranks a word; the last half is the number
  };
  // An entry with what belongs to it, as a reader found it.
  struct Copy {
    uint64_t what, more, bytes, state, fault, position;
    std::array<uint64_t, kTimes> times;
    std::array<uint64_t, kNameBytes / 8> name;
    std::array<uint64_t, kDims> shape;
    std::array<uint64_t, (kMissing + 1) / 2> missing;

    std::string_view name_text() const {
      return {reinterpret_cast<const char*>(name.data()), std::min<size_t>(more >> 32, kNameBytes)};
    }
    void WriteTo(LineWriter& out, Id id, const TickScale& ticks, const TickScale::Pair& now) const;
    void WriteKind(LineWriter& out) const;
    void WriteMissing(LineWriter& out) const;
  };

  // The check and the caller's store are not one step. An operation that the ring overtakes just there, a whole ring of
  // others later, leaves one wrong time behind: not worth a locked instruction per mark.
  Entry* Find(Id id) {
    if (id == kNone) return nullptr;
    Entry* entry = &entries_[id & mask_];
    return entry->seq.load(std::memory_order_relaxed) == 2 * id + 2 ? entry : nullptr;
  }
  Known Describe(const FlightOp& op);
  bool IsDescribedBy(const FlightOp& op, Known known) const;
  // The detail of an operation in the ring, cleared if it was another's.
  Detail& DetailOf(Id id);
  void AddLine(const std::string& line);
  // False: it is not in the ring, or was replaced meanwhile.
  bool Read(Id id, Copy* copy) const;
  bool ReadDescription(Known known, Copy* copy) const;
  void ReadDetail(Id id, Copy* copy) const;
  bool Write(std::string_view reason) noexcept;
  bool WriteAll(LineWriter& out, std::string_view reason) noexcept;

  const FlightOptions options_;
  const std::string path_;
  DumpFile file_;  // of the one who set dumping_
  const std::string boot_;
  const TickScale ticks_;
  const uint64_t mask_;
  const std::unique_ptr<Entry[]> entries_;
  const std::unique_ptr<Detail[]> details_;
  // Twice as many as entries: see IsDescribedBy.
  const std::unique_ptr<Description[]> descriptions_;
  uint64_t described_ = 0;  // so far

  std::mutex lines_mutex_;  // among writers
  const size_t lines_capacity_;
  const std::unique_ptr<char[]> lines_;
  std::atomic<size_t> lines_used_{0};  // release: the bytes below it stay as they are

  std::atomic<bool> dumping_{false};
  std::array<char, 8192> buffer_;  // of the one who set dumping_

  std::atomic<uint64_t> next_{0};
};

// The word that stands for a state in dumps.
std::string_view NameOf(FlightState state);

}  // namespace hvd::trace
