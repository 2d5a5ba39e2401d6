// SPDX-License-Identifier: Apache-2.0
// Members that have run out of data; see process_set.h.
#include "hvd/engine/process_set/process_set.h"

namespace hvd::engine {

Operation* ProcessSet::StandIn(const controller::Plan& plan) {
  Operation* op = options_.host->MakeStandIn();
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  op->set = this;
  op->request.name = plan.name;
  op->request.signature = plan.signature;
  // A free first dimension is 0 in a plan: this member brings nothing there.
  op->snapshot.resize(static_cast<size_t>(controller::InputBytes(plan.signature)));
  kernel::FillNeutral(plan.signature.reduce_op, plan.signature.dtype, op->snapshot.data(),
                      op->snapshot.size() / SizeOf(plan.signature.dtype));
  op->input = op->snapshot.data();
  op->input_bytes = op->snapshot.size();
  PrepareWork(op);
  return op;
}

// The sequencer must not hear of the join before it has heard of everything that this rank submitted earlier: when all
// have joined, nobody comes to those operations any more. What is announced gets there when the epoch closes.
void ProcessSet::BeginJoin(Operation* op) {
  join_.op = op;
  op->state = Operation::State::kAnnounced;
  join_.waits = epoch_.announcing || !stages_.announced.empty() || !stages_.waiting.empty();
  if (epoch_.announcing) StopAnnouncing();
  if (!join_.waits) Tell(op);
}

void ProcessSet::FinishJoin(int last_member) {
  Operation* op = join_.op;
  if (op == nullptr || last_member < 0 || last_member >= size()) {
    GiveUp({Code::kInternal, "the log ends a join that this rank did not begin"});
    return;
  }
  stages_.sent.erase(op->request.name);
  op->number = options_.ranks[last_member];
  join_.agreed = true;
  FinishJoinIfIdle();
}

// A rank that returned from its join may leave, and others would miss it in what it stands in for, or in an operation
// of its own that timed out here and goes on.
void ProcessSet::FinishJoinIfIdle() {
  if (!join_.agreed || stages_.moving()) return;
  join_.agreed = false;
  Finish(join_.op, {Code::kOk, {}, -1});
}

}  // namespace hvd::engine
