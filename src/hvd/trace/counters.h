// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one rank did since its engine began, in numbers. counters_text.h shows them.
//
// Counting costs a few plain additions per operation. Times are in ticks (ticks.h): they become seconds when somebody
// asks.
//
// Thread safety: additions with the progress token, readers at any time. Every number is right by itself; several that
// are read while the engine works may be of different moments.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "hvd/base/monotonic_counter.h"
#include "hvd/base/types.h"

namespace hvd::trace {

inline constexpr std::array<std::string_view, 9> kCountedKinds{
    "allreduce", "allgather", "broadcast", "barrier", "alltoall", "reducescatter", "join", "adasum", "process_set"};

// Index into kCountedKinds.
constexpr size_t CountedKind(OpKind op, ReduceOp reduce) {
  if (op == OpKind::kAllreduce && reduce == ReduceOp::kAdasum) return 7;
  return ChangesProcessSets(op) ? 8 : static_cast<size_t>(op);
}

// A number as it is now. Thread safety: as MonotonicCounter, with Set in the place of Add.
class Gauge {
 public:
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t load() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Counters {
  explicit Counters(int size) : peers(static_cast<size_t>(size)) {}

  // Operations that this rank's callers submitted; see docs/operate/monitoring.md for what is counted when.
  struct alignas(64) Kind {
    MonotonicCounter completed;
    MonotonicCounter failed;
    MonotonicCounter timed_out;  // of the failed ones
    MonotonicCounter bytes;
    MonotonicCounter wait;  // ticks until all members wanted it
    MonotonicCounter run;   // ticks from then on
  };
  std::array<Kind, kCountedKinds.size()> kinds;

  // By rank, this one included.
  struct alignas(64) Peer {
    PeerByteCounts shm;     // data of operations, through shared memory
    MonotonicCounter last;  // operations for which this rank waited until that one came
    MonotonicCounter wait;  // ticks, in those
  };
  std::vector<Peer> peers;

  // What tuning changes, of the global process set (docs/guides/performance.md).
  struct InForce {
    Gauge chunk_percent;  // chunks and slices, of those that the job began with
    Gauge chunk_bytes;    // of data that is staged in shared memory
    Gauge eager_bytes;    // most bytes beside a mark
    Gauge spin_us;        // before this rank sleeps
  } in_force;

  MonotonicCounter operations;  // over in any way, also those that nobody here asked for: a measure of progress
  MonotonicCounter cache_hits;
  MonotonicCounter requests;  // cache misses
  MonotonicCounter fusion_batches;
  MonotonicCounter fusion_tensors;
  MonotonicCounter fusion_bytes;
  MonotonicCounter sleeps;
  MonotonicCounter stalls;
};

}  // namespace hvd::trace
