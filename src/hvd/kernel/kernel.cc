// SPDX-License-Identifier: Apache-2.0
#include "hvd/kernel/kernel.h"

#include <algorithm>
#include <cassert>

#include "hvd/kernel/dispatch.h"
#include "hvd/kernel/fp_mode.h"
#include "hvd/kernel/reduce.h"

namespace hvd::kernel {

void Reduce(ReduceOp op, DType type, std::span<const void* const> sources, std::span<void* const> destinations,
            size_t count, Scale scale, Stores stores) {
  assert(Supports(op, type) && !sources.empty());
  if (count == 0) return;
  const ScopedFpMode mode;
  ReduceArgs args{sources.data(), sources.size(), destinations.data(), destinations.size(),
                  count,          scale.pre,      scale.post};
  args.stores = stores;
  ReduceWith(ActiveTable(), op, type, args);
}

void ReduceGrouped(ReduceOp op, DType type, std::span<const void* const> sources, std::span<const int> group_sizes,
                   std::span<void* const> destinations, size_t count, Scale scale) {
  assert(Supports(op, type) && !sources.empty());
  if (count == 0) return;
  const ScopedFpMode mode;
  const ReduceArgs args{sources.data(), sources.size(), destinations.data(), destinations.size(),
                        count,          scale.pre,      scale.post};
  // A group of one is its source (rounded only if prescaled), so groups of one are no groups.
  const bool flat = group_sizes.size() <= 1 || (scale.pre == 1.0 && std::all_of(group_sizes.begin(), group_sizes.end(),
                                                                                [](int n) { return n == 1; }));
  if (flat) {
    ReduceWith(ActiveTable(), op, type, args);
  } else {
    ReduceGroupedWith(ActiveTable(), op, type, group_sizes, args);
  }
}

bool Supports(ReduceOp op, DType type) {
  if (!IsValid(op) || !IsValid(type)) return false;
  return ActiveTable().reduce[static_cast<int>(type)][static_cast<int>(op)] != nullptr;
}

const char* TargetName() { return ActiveTable().name; }

}  // namespace hvd::kernel
