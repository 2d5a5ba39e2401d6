// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/process_set/result_size.h"

#include <fmt/format.h>

namespace hvd::engine {
namespace {

// Rows of member m when `rows` are dealt out: the first ones get one more where it does not come out even.
int64_t RowsOf(int64_t rows, int members, int m) { return rows / members + (m < rows % members ? 1 : 0); }

}  // namespace

size_t RowBytes(const controller::Signature& signature) {
  size_t bytes = SizeOf(signature.dtype);
  for (size_t i = 1; i < signature.shape.size(); ++i) bytes *= static_cast<size_t>(signature.shape[i]);
  return bytes;
}

bool SizesResult(OpKind op) {
  return op == OpKind::kAllgather || op == OpKind::kAlltoall || op == OpKind::kReducescatter;
}

int64_t PrepareParts(Operation* op, const std::vector<int64_t>& rows, int members, int me) {
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
        if (static_cast<int>(i) % members != me) continue;
        op->received_splits.push_back(static_cast<int32_t>(rows[i]));
        mine += rows[i];
      }
      return mine;
    default:
      for (int m = 0; m < members; ++m) {
        work.member_bytes.push_back(static_cast<size_t>(RowsOf(signature.shape[0], members, m)) * row);
      }
      return RowsOf(signature.shape[0], members, me);
  }
}

void TakeMemory(Operation* op) {
  op->output = op->work.result_to = static_cast<std::byte*>(op->alloc_answer);
  if (op->output == nullptr && op->output_bytes > 0) {
    op->error = {Code::kResourceExhausted, fmt::format("the allocation callback gave no memory for {} bytes of '{}'",
                                                       op->output_bytes, op->request.name)};
  }
}

}  // namespace hvd::engine
