// SPDX-License-Identifier: Apache-2.0
// Members that have run out of data; see process_set.h.
#include "hvd/engine/process_set.h"

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

void ProcessSet::FinishJoin(int last_member) {
  Operation* op = joined_;
  if (op == nullptr || last_member < 0 || last_member >= size()) {
    GiveUp({Code::kInternal, "the log ends a join that this rank did not begin"});
    return;
  }
  sent_.erase(op->request.name);
  op->number = options_.ranks[last_member];
  Finish(op, {Code::kOk, {}, -1});
}

}  // namespace hvd::engine
