// SPDX-License-Identifier: Apache-2.0
// Groups are reduced one after the other, block by block. Group: consecutive sources. Partial: a group's result,
// rounded to the element type. Total: the partials so far, in the accumulation type.
#include <algorithm>

#include "hvd/kernel/reduce.h"

namespace hvd::kernel {
namespace {

// The wide parts hold float for 16-bit types; other types accumulate in themselves and need no conversion.
struct Buffers {
  alignas(64) char partial[kBlockBytes];
  alignas(64) char wide_partial[2 * kBlockBytes];
  alignas(64) char total[2 * kBlockBytes];
};

void GroupedBlock(const Table& table, ReduceOp op, DType type, std::span<const int> group_sizes,
                  const ReduceArgs& block, Buffers& buffers) {
  const ConvertFn widen = table.widen[static_cast<int>(type)];
  const ConvertFn narrow = table.narrow[static_cast<int>(type)];
  const DType wide_type = widen != nullptr ? DType::kFloat32 : type;
  void* const partial[] = {buffers.partial};
  void* const total[] = {buffers.total};
  char* const wide_partial = widen != nullptr ? buffers.wide_partial : buffers.partial;
  const void* const total_and_partial[] = {buffers.total, wide_partial};

  size_t first = 0;
  for (size_t g = 0; g < group_sizes.size(); ++g) {
    const size_t size = static_cast<size_t>(group_sizes[g]);
    const bool to_total = g == 0 && widen == nullptr;
    ReduceWith(table, op, type,
               {block.sources + first, size, to_total ? total : partial, 1, block.count, block.pre, 1.0,
                block.source_offset, 0});
    first += size;
    if (widen != nullptr) widen(buffers.partial, g == 0 ? buffers.total : wide_partial, block.count);
    if (g == 0) continue;
    const bool last = g + 1 == group_sizes.size();
    ReduceArgs join{total_and_partial, 2, total, 1, block.count, 1.0, last ? block.post : 1.0};
    if (last && narrow == nullptr) {
      join.destinations = block.destinations;
      join.destination_count = block.destination_count;
      join.destination_offset = block.destination_offset;
    }
    ReduceWith(table, op, wide_type, join);
  }
  if (narrow != nullptr) {
    narrow(buffers.total, buffers.partial, block.count);
    CopyToAll(buffers.partial, type, block);
  }
}

}  // namespace

void ReduceGroupedWith(const Table& table, ReduceOp op, DType type, std::span<const int> group_sizes,
                       const ReduceArgs& args) {
  Buffers buffers;
  ReduceArgs block = args;
  for (size_t done = 0; done < args.count; done += block.count) {
    block.count = std::min(args.count - done, kBlockBytes / SizeOf(type));
    block.source_offset = args.source_offset + done;
    block.destination_offset = args.destination_offset + done;
    GroupedBlock(table, op, type, group_sizes, block, buffers);
  }
}

}  // namespace hvd::kernel
