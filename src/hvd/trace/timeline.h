// SPDX-License-Identifier: Apache-2.0
#pragma once
// The timeline: what happened to each tensor when, as Chrome trace JSON for chrome://tracing and ui.perfetto.dev.
//
// A tensor is a process of the trace, a rank is its thread. Phases are told when they are over, with both their times,
// so begin and end are always written together and a killed rank leaves no half of a pair. Ready marks are written at
// once: an operation that hangs shows who had come.
//
// Recording copies a name and some numbers into a queue; a thread of its own formats and writes. Nothing here ever
// waits for it: what does not fit into the queue is dropped, and the trace says how much. The thread sleeps while
// nothing is recorded. While the timeline is off, recording is one relaxed load.
//
// Thread safety: everything; Start and Stop wait for each other.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/trace/event_queue.h"

namespace hvd::trace {

struct TimelineOptions {
  std::string path;
  Rank rank = 0;
  int size = 1;
  std::string host;
  bool mark_cycles = false;
  // Most bytes of `path` and the one before it, `path`.1, together; at least 128 KiB. 0: no limit, one file.
  uint64_t max_bytes = 256 << 20;
  // What must be added to this host's wall clock to get rank 0's, where somebody measured it.
  int64_t clock_offset_ns = 0;
};

// Where rank r writes if all ranks do: "t.json" for rank 0, "t.3.json" for rank 3.
std::string TimelinePath(std::string_view path, Rank rank);

struct TimelineEvent {
  enum class Kind : uint8_t { kReady, kNegotiated, kExecuted, kActivity, kCycle, kClock };
  static constexpr size_t kNameBytes = 136;
  static constexpr size_t kDims = 6;

  Kind kind;
  uint8_t name_length;
  uint8_t dims;
  int32_t set;
  int32_t number;  // the rank of kReady, the OpKind of phases
  int32_t dtype;
  const char* activity;
  Time begin;
  Time end;
  int64_t shape[kDims];  // of kClock: the offset
  char name[kNameBytes];
};

class TimelineWriter;

class Timeline {
 public:
  explicit Timeline(uint64_t capacity = 16384) : capacity_(capacity) {}
  ~Timeline() { Stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Begins a new file; one that is being written is finished first.
  Status Start(TimelineOptions options);
  // What was recorded before is in the file when this returns.
  void Stop();
  // The same, and goes on.
  void Flush();

  bool on() const { return queue_.load(std::memory_order_relaxed) != nullptr; }

  // This rank learned that `rank` is ready for the operation.
  void Ready(int set, std::string_view name, Rank rank, Time at) {
    if (on()) Record(TimelineEvent::Kind::kReady, set, name, rank, at, at);
  }
  // NEGOTIATE_<OP>: from submission to agreement.
  void Negotiated(int set, std::string_view name, OpKind op, Time begin, Time end) {
    if (on()) Record(TimelineEvent::Kind::kNegotiated, set, name, static_cast<int32_t>(op), begin, end);
  }
  // <OP>: from agreement to completion. Type and shape are the output's.
  void Executed(int set, std::string_view name, OpKind op, Time begin, Time end, DType dtype,
                std::span<const int64_t> shape) {
    if (on()) Record(TimelineEvent::Kind::kExecuted, set, name, static_cast<int32_t>(op), begin, end, dtype, shape);
  }
  // A part of <OP>, inside its times. `activity` is a literal, such as "MEMCPY_IN_FUSION_BUFFER".
  void Activity(int set, std::string_view name, const char* activity, Time begin, Time end) {
    if (on()) Record(TimelineEvent::Kind::kActivity, set, name, 0, begin, end, DType::kUInt8, {}, activity);
  }
  // CYCLE_START, if such marks were asked for.
  void Cycle(Time at) {
    if (on() && mark_cycles_.load(std::memory_order_relaxed)) {
      Record(TimelineEvent::Kind::kCycle, 0, {}, 0, at, at);
    }
  }

  // TimelineOptions::clock_offset_ns was measured meanwhile.
  void KnowClock(int64_t offset_ns) {
    const Time now = SteadyClock().Now();
    if (on()) Record(TimelineEvent::Kind::kClock, 0, {}, 0, now, now, DType::kUInt8, {&offset_ns, 1});
  }

  // Events that did not fit into the queue, since the object was made.
  uint64_t dropped();

 private:
  using Queue = EventQueue<TimelineEvent>;
  enum Bell : uint32_t { kWorking, kLingering, kIdle };

  void Record(TimelineEvent::Kind kind, int set, std::string_view name, int32_t number, Time begin, Time end,
              DType dtype = DType::kUInt8, std::span<const int64_t> shape = {}, const char* activity = "");
  void Run(std::unique_ptr<TimelineWriter> writer);
  bool Drain(TimelineWriter* writer);
  void Sleep(Bell how);
  void Ring();

  const uint64_t capacity_;
  std::atomic<Queue*> queue_{nullptr};  // nullptr: off. Release, with Record's acquire: the queue is made
  std::atomic<bool> mark_cycles_{false};
  std::atomic<uint32_t> bell_{kWorking};
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> written_{0};  // entries taken and flushed

  std::mutex mutex_;             // of Start and Stop
  std::unique_ptr<Queue> made_;  // kept until the end: a recorder may be late
  std::thread thread_;
  uint64_t dropped_shown_ = 0;  // the thread's
};

}  // namespace hvd::trace
