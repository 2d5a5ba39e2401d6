// SPDX-License-Identifier: Apache-2.0
#pragma once
// The arithmetic of collectives: SIMD loops with run-time dispatch. Pure functions of memory; no state, no allocation.
//
// Thread safety: all functions may run on any thread at once. None depends on the caller's MXCSR or rounding mode.

#include <cstddef>
#include <span>

#include "hvd/base/types.h"

namespace hvd::kernel {

// What is done to elements besides the reduction itself: in * prescale -> reduce -> * postscale. A factor of exactly 1
// costs and changes nothing. float16, bfloat16 and float32 use float factors and accumulate in float; float64 and
// integers use double factors, integers truncate toward zero (saturating at the type's range; NaN gives 0).
struct Scale {
  double pre = 1.0;
  double post = 1.0;
};

// How results are stored. A store to a line that another core has written lately waits for it, and longer than a load
// does; prefetched, a loop asks for its lines some time before it stores to them. Depending on the machine, and on
// whether the others are threads of the same core, that is faster or slower. It changes no bits.
enum class Stores { kPlain, kPrefetched };

// For every i < count: acc = sources[0][i]; acc = acc OP sources[k][i] for k = 1, 2, ... in that order; then acc is
// stored to every destination. A destination may be exactly one of the sources (in place), else it overlaps none.
// float16 and bfloat16 are accumulated in float and rounded once (to nearest even). Integer sums and products wrap.
// min and max propagate NaN (the first one met), and keep the earlier operand when both are equal. bool: kMin is and,
// kMax is or. kAverage counts as kSum (the division is the caller's postscale). kAdasum is not for this function.
// Needs sources.size() >= 1. Buffers may have any alignment. `count` may be 0.
void Reduce(ReduceOp op, DType type, std::span<const void* const> sources, std::span<void* const> destinations,
            size_t count, Scale scale = {}, Stores stores = Stores::kPlain);

// As Reduce with groups: sources are summed group by group (group g holds group_sizes[g] consecutive sources), each
// group's result is rounded to `type`, and group results are reduced in group order (again in the accumulation type,
// rounded once). This is the summation order of the rank layout: local rank order, then host order. prescale applies to
// each source, postscale to the final result. With one group it equals Reduce bit for bit.
void ReduceGrouped(ReduceOp op, DType type, std::span<const void* const> sources, std::span<const int> group_sizes,
                   std::span<void* const> destinations, size_t count, Scale scale = {});

// Whether elements of `wide` can travel as `small`: float32 and float64 as float16 and bfloat16.
bool CanNarrow(DType wide, DType small);

// Elements of `wide` as `small`, and back; CanNarrow says which. Narrowing rounds to nearest even, and once, from
// float64, too; what is too large becomes infinite, a NaN stays one (half.h). Widening is exact. Buffers may have any
// alignment and do not overlap. `count` may be 0.
void Narrow(DType wide, const void* from, DType small, void* to, size_t count);
void Widen(DType small, const void* from, DType wide, void* to, size_t count);

// memcpy by the loop that is the fastest one on this processor for this size and alignment (copy_method.h). Everything
// that moves tensors uses it. `bytes` may be 0.
void Copy(void* to, const void* from, size_t bytes);

// Elements that change nothing in a reduction without factors: 0 for sums, 1 for products, the largest value for min,
// the smallest for max. `to` is aligned for its type.
void FillNeutral(ReduceOp op, DType type, void* to, size_t count);

// Whether this reduction exists for this type (bool knows kMin and kMax only; scale factors need a type that is no
// bool).
bool Supports(ReduceOp op, DType type);

// "AVX3", "AVX2", ...: what run-time dispatch chose on this machine.
const char* TargetName();

}  // namespace hvd::kernel
