// SPDX-License-Identifier: Apache-2.0
#include "hvd/kernel/reduce.h"

#include <algorithm>

namespace hvd::kernel {
namespace {

const void* SourceAt(const ReduceArgs& args, size_t k, size_t size) {
  return static_cast<const char*>(args.sources[k]) + args.source_offset * size;
}

}  // namespace

void CopyToAll(const void* from, DType type, const ReduceArgs& args) {
  const size_t size = SizeOf(type);
  for (size_t k = 0; k < args.destination_count; ++k) {
    void* to = static_cast<char*>(args.destinations[k]) + args.destination_offset * size;
    if (to != from) Copy(to, from, args.count * size);
  }
}

void ReduceWith(const Table& table, ReduceOp op, DType type, const ReduceArgs& args) {
  const int t = static_cast<int>(type);
  const int o = static_cast<int>(op);
  if (args.pre == 1.0 && args.post == 1.0) {
    if (args.source_count == 1) return CopyToAll(SourceAt(args, 0, SizeOf(type)), type, args);
    table.reduce[t][o](args);
  } else if (table.reduce_scaled[t][o] != nullptr) {
    table.reduce_scaled[t][o](args);
  } else {
    ReduceScaledIntegers(table, op, type, args);
  }
}

void ReduceScaledIntegers(const Table& table, ReduceOp op, DType type, const ReduceArgs& args) {
  const ReduceFn reduce = table.reduce[static_cast<int>(type)][static_cast<int>(op)];
  const ScaleFn scale = table.scale[static_cast<int>(type)];
  if (scale == nullptr) return;  // bool knows no factors
  const size_t size = SizeOf(type);
  alignas(64) char acc[kBlockBytes];
  alignas(64) char next[kBlockBytes];
  void* const acc_only[] = {acc};
  const void* const acc_and_next[] = {acc, next};

  ReduceArgs block = args;
  block.pre = block.post = 1.0;
  for (size_t done = 0; done < args.count; done += block.count) {
    block.count = std::min(args.count - done, kBlockBytes / size);
    block.source_offset = args.source_offset + done;
    block.destination_offset = args.destination_offset + done;
    if (args.pre == 1.0) {
      reduce({args.sources, args.source_count, acc_only, 1, block.count, 1.0, 1.0, block.source_offset, 0});
    } else {
      scale(SourceAt(block, 0, size), acc, block.count, args.pre);
      for (size_t k = 1; k < args.source_count; ++k) {
        scale(SourceAt(block, k, size), next, block.count, args.pre);
        reduce({acc_and_next, 2, acc_only, 1, block.count});
      }
    }
    if (args.post != 1.0) scale(acc, acc, block.count, args.post);
    CopyToAll(acc, type, block);
  }
}

}  // namespace hvd::kernel
