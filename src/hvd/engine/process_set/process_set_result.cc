// SPDX-License-Identifier: Apache-2.0
// Results whose size an operation only knows when all members have asked; see process_set.h.
#include "hvd/controller/agreement_check.h"
#include "hvd/engine/memory.h"
#include "hvd/engine/process_set/process_set.h"
#include "hvd/engine/process_set/result_size.h"

namespace hvd::engine {

using State = Operation::State;

bool ProcessSet::CheckRows(std::string_view name, const controller::Signature& own, const std::vector<int64_t>& rows) {
  if (controller::RowsFit(own, rows, size(), options_.me)) return true;
  GiveUp({Code::kInternal, fmt::format("the announced sizes of {} '{}' are impossible", NameOf(own.op), name)});
  return false;
}

bool ProcessSet::PrepareResult(Operation* op, const std::vector<int64_t>& rows) {
  const controller::Signature& signature = op->request.signature;
  op->output_shape = signature.shape;
  op->output_shape[0] = PrepareParts(op, rows, size(), options_.me);
  const size_t bytes = static_cast<size_t>(op->output_shape[0]) * RowBytes(signature);
  op->work.result_to = nullptr;
  if (op->detached.load(std::memory_order_relaxed)) return true;
  if (op->output_given) {
    if (op->output_bytes == bytes) {
      op->work.result_to = op->output;
    } else {
      op->error = {
          Code::kInvalidArgument,
          fmt::format("the output of {} '{}' has {} bytes, but the result has {} (shape {}): give that many, "
                      "or let the library allocate it",
                      NameOf(signature.op), op->request.name, op->output_bytes, bytes, ToString(op->output_shape))};
    }
    return true;
  }
  op->output_bytes = bytes;
  if (op->alloc != nullptr) {
    op->allocated.store(Operation::Alloc::kAsked, std::memory_order_relaxed);
    op->state = State::kAllocating;
    options_.host->AskForMemory(op, bytes);
    return false;
  }
  op->output = op->work.result_to = AllocateOutput(bytes);
  op->engine_owned = op->output != nullptr;
  if (op->output == nullptr)
    op->error = {Code::kResourceExhausted, fmt::format("no memory for an output of {} bytes", bytes)};
  return true;
}

}  // namespace hvd::engine
