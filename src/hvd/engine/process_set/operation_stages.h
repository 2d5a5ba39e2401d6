// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations of a process set that are not over. Each is in one stage, but for a join that waits: see JoinState.
//
// held        Postponed on this rank: see ProcessSetDelegate::IsPostponed.
// waiting     To be announced next. nullptr: a void mark.
// announced   At consecutive positions of the stream, from the first undecided one on. nullptr: a void mark.
// sent        Requested from the sequencer, by name.
// queued      Agreed by the log, not started yet. Machines are made at the start, in order.
// allocating  Announced and agreed. Waits for the memory of its output.
// running     Data moves.
//
// Thread safety: call with the progress token.

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hvd/collective/machine.h"
#include "hvd/comm/communicator.h"
#include "hvd/engine/operation.h"

namespace hvd::engine {

// Operations that one step machine moves together.
struct RunningOperations {
  std::unique_ptr<collective::Machine> machine;
  std::vector<Operation*> ops;
  std::unique_ptr<comm::Work> fused;
  uint64_t position = 0;
  bool announced = false;  // its position is one of the announcement stream
};

struct OperationStages {
  // In the order in which an operation is nearer to its end.
  enum class Stage { kHeld, kWaiting, kSent, kAnnounced, kQueued, kAllocating, kRunning };

  std::deque<Operation*> held;
  std::deque<Operation*> waiting;
  std::deque<Operation*> announced;
  std::unordered_map<std::string_view, Operation*> sent;
  std::deque<RunningOperations> queued;
  std::vector<RunningOperations> allocating;
  std::vector<RunningOperations> running;

  // Whether anything is agreed and not over.
  bool moving() const { return !queued.empty() || !allocating.empty() || !running.empty(); }

  // Calls `visit(stage, index, op)` for every operation, but not for void marks. `index` counts the entries of its
  // stage from 0; the operations that run together share one.
  template <typename Visit>
  void ForEach(Visit visit) const {
    const auto one_by_one = [&](Stage stage, const std::deque<Operation*>& ops) {
      for (size_t i = 0; i < ops.size(); ++i) {
        if (ops[i] != nullptr) visit(stage, i, ops[i]);
      }
    };
    const auto together = [&](Stage stage, const auto& entries) {
      for (size_t i = 0; i < entries.size(); ++i) {
        for (Operation* op : entries[i].ops) visit(stage, i, op);
      }
    };
    one_by_one(Stage::kAnnounced, announced);
    one_by_one(Stage::kWaiting, waiting);
    one_by_one(Stage::kHeld, held);
    size_t index = 0;
    for (const auto& [name, op] : sent) visit(Stage::kSent, index++, op);
    together(Stage::kQueued, queued);
    together(Stage::kAllocating, allocating);
    together(Stage::kRunning, running);
  }

  // Empties all stages. Machines end here, so nothing moves any more.
  std::vector<Operation*> TakeAll() {
    std::vector<Operation*> all;
    ForEach([&](Stage, size_t, Operation* op) { all.push_back(op); });
    *this = OperationStages();
    return all;
  }
};

// The epoch of an announcement stream on this rank, and how far this rank has come in it.
struct EpochState {
  bool announcing = false;  // what is submitted now may be announced
  bool closed = false;
  uint64_t number = 0;
  uint64_t first = 0;       // position of the epoch
  uint64_t head = 0;        // first position that is not decided
  uint64_t next = 0;        // first position without this rank's mark
  int late = -1;            // the member whose mark was missing at the last look
  uint64_t late_below = 0;  // at all positions below this

  // Whether a mark of this rank is not decided yet.
  bool undecided() const { return head != next; }
};

// This rank's join, until all ranks have joined.
struct JoinState {
  Operation* op = nullptr;
  bool waits = false;   // for what was announced before it
  bool agreed = false;  // all have joined, but something of the set still runs here
};

}  // namespace hvd::engine
