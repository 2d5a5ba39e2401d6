// SPDX-License-Identifier: Apache-2.0
#pragma once
// Internal to kernel: reductions with a given table, composed of its functions. The caller has set the FP mode
// (fp_mode.h).

#include "hvd/kernel/dispatch.h"

namespace hvd::kernel {

// Bytes of each buffer on the stack through which composed reductions work block by block: two or three of them and the
// blocks of a few sources fit in the first-level cache.
inline constexpr size_t kBlockBytes = 4096;

// As Reduce in kernel.h. args.count is at least 1.
void ReduceWith(const Table& table, ReduceOp op, DType type, const ReduceArgs& args);

// For factors that are not both 1.
void ReduceScaledIntegers(const Table& table, ReduceOp op, DType type, const ReduceArgs& args);

// As ReduceGrouped in kernel.h, for at least two groups. args.source_count is the sum of `group_sizes`.
void ReduceGroupedWith(const Table& table, ReduceOp op, DType type, std::span<const int> group_sizes,
                       const ReduceArgs& args);

// Copies `from` to args' destinations (at their offset), but not onto itself.
void CopyToAll(const void* from, DType type, const ReduceArgs& args);

}  // namespace hvd::kernel
