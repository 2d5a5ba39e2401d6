// SPDX-License-Identifier: Apache-2.0
// Results whose size an operation only knows when all members have asked; see process_set.h.
#include "hvd/engine/memory.h"
#include "hvd/engine/process_set.h"

namespace hvd::engine {

using State = Operation::State;

namespace {

// Rows of member m when `rows` are dealt out: the first ones get one more where it does not come out even.
int64_t RowsOf(int64_t rows, int members, int m) { return rows / members + (m < rows % members ? 1 : 0); }

}  // namespace

size_t ProcessSet::RowBytes(const controller::Signature& signature) {
  size_t bytes = SizeOf(signature.dtype);
  for (size_t i = 1; i < signature.shape.size(); ++i) bytes *= static_cast<size_t>(signature.shape[i]);
  return bytes;
}

bool ProcessSet::SizesResult(OpKind op) {
  return op == OpKind::kAllgather || op == OpKind::kAlltoall || op == OpKind::kReducescatter;
}

int64_t ProcessSet::PrepareParts(Operation* op, const std::vector<int64_t>& rows) {
  const controller::Signature& signature = op->request.signature;
  const size_t row = RowBytes(signature);
  comm::Work& work = op->work;
  work.member_bytes.clear();
  work.exchange_bytes.clear();
  int64_t mine = 0;
  switch (signature.op) {
    case OpKind::kAllgather:
      for (const int64_t dim : rows) {
        mine += dim;
        work.member_bytes.push_back(static_cast<size_t>(dim) * row);
      }
      return mine;
    case OpKind::kAlltoall:
      op->received_splits.clear();
      for (size_t i = 0; i < rows.size(); ++i) {
        work.exchange_bytes.push_back(static_cast<size_t>(rows[i]) * row);
        if (static_cast<int>(i % options_.ranks.size()) != options_.me) continue;
        op->received_splits.push_back(static_cast<int32_t>(rows[i]));
        mine += rows[i];
      }
      return mine;
    default:
      for (int m = 0; m < size(); ++m) {
        work.member_bytes.push_back(static_cast<size_t>(RowsOf(signature.shape[0], size(), m)) * row);
      }
      return RowsOf(signature.shape[0], size(), options_.me);
  }
}

bool ProcessSet::PrepareResult(Operation* op, const std::vector<int64_t>& rows) {
  const controller::Signature& signature = op->request.signature;
  op->output_shape = signature.shape;
  op->output_shape[0] = PrepareParts(op, rows);
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

void ProcessSet::TakeMemory(Operation* op) {
  op->output = op->work.result_to = static_cast<std::byte*>(op->alloc_answer);
  if (op->output == nullptr && op->output_bytes > 0) {
    op->error = {Code::kResourceExhausted, fmt::format("the allocation callback gave no memory for {} bytes of '{}'",
                                                       op->output_bytes, op->request.name)};
  }
}

}  // namespace hvd::engine
