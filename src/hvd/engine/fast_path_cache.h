// SPDX-License-Identifier: Apache-2.0
#pragma once
// Cache of small blocking reductions that have run before. A repeated call is compared with its entry and not validated
// again.
//
// An entry is what was left of an operation that went through all checks and was agreed on by announcement. A caller
// who asks for the same again, while nothing else is in flight on this rank, publishes the mark at once, looks at the
// peers' marks, reduces, and is done: no Operation, no handle, no table. Of larger data, where it lies in the arena or
// in one staged chunk, it reduces a slice, and looks at the peers' counters until none of them stores any more.
// Whatever is out of the ordinary meanwhile turns it into an ordinary operation at the same position, and in the same
// state: see fast_path.h.
//
// Thread safety: call with the progress token.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hvd/comm/communicator.h"
#include "hvd/controller/plan.h"
#include "hvd/engine/operation.h"

namespace hvd::engine {

// An allreduce or reducescatter as a caller asks for it, in the caller's memory. Nothing is checked.
struct RequestView {
  uint64_t prepared = 0;  // its id; then the description below it counts for nothing
  OpKind op = OpKind::kAllreduce;
  std::string_view name;
  int process_set = 0;
  DType dtype = DType::kFloat32;
  std::optional<DType> wire;  // as Submission::wire
  ReduceOp reduce_op = ReduceOp::kSum;
  double prescale = 1;
  double postscale = 1;
  std::span<const int64_t> shape;

  const std::byte* input = nullptr;
  size_t input_bytes = 0;
  std::byte* output = nullptr;
  size_t output_bytes = 0;
};

struct FastPathEntry {
  uint64_t prepared = 0;
  int process_set = 0;
  int serial = 0;  // of the set
  controller::Request request;
  std::optional<DType> memory_type;  // as Operation::memory_type
  size_t input_bytes = 0;
  comm::Work work;
  Shape output_shape;
  size_t output_bytes = 0;
  uint64_t uid = 0;                // of its plan
  uint64_t plans = 0;              // changes of the plans after which the uid was looked up
  bool may_be_direct = false;      // peers may store into the caller's memory, if that is arena memory
  uint64_t flight = ~uint64_t{0};  // as NameEntry::flight

  // The run that is under way.
  uint64_t flight_entry = ~uint64_t{0};  // in the flight recorder
  uint64_t begun = 0;                    // by the recorder's clock
  uint64_t agreed = 0;
  size_t reduced = 0;  // chunks of data that is reduced in slices; 0: this rank has not stored anything yet
};

class FastPathCache {
 public:
  // Larger data takes so long that checks do not matter; what is not in the arena is copied in pieces.
  static constexpr size_t kMostBytes = 64 << 10;
  static constexpr size_t kMostArenaBytes = 1 << 20;

  // nullptr: not known.
  FastPathEntry* Find(const RequestView& view) {
    if (table_.empty()) return nullptr;
    FastPathEntry* known = Slot(view.prepared, view.name).get();
    return known != nullptr && Matches(*known, view) ? known : nullptr;
  }
  // Remembers an operation that is over, if the next one could be done on the fast path.
  void Learn(uint64_t prepared, int process_set, const Operation& op);

 private:
  static constexpr size_t kKept = 1024;

  static bool Matches(const FastPathEntry& known, const RequestView& view);
  std::unique_ptr<FastPathEntry>& Slot(uint64_t prepared, std::string_view name);

  std::vector<std::unique_ptr<FastPathEntry>> table_;  // by hash; a newer one takes an older one's place
};

}  // namespace hvd::engine
