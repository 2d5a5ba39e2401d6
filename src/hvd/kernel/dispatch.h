// SPDX-License-Identifier: Apache-2.0
#pragma once
// Internal to kernel and its tests: the loops of one instruction set as a table of plain functions, and which one is
// used.

#include <cstddef>
#include <span>

#include "hvd/base/types.h"
#include "hvd/kernel/kernel.h"

namespace hvd::kernel {

// Offsets and count are in elements; offsets let callers go block by block without a copy of the pointers.
struct ReduceArgs {
  const void* const* sources;
  size_t source_count;  // at least 1
  void* const* destinations;
  size_t destination_count;
  size_t count;
  double pre = 1.0;
  double post = 1.0;
  size_t source_offset = 0;
  size_t destination_offset = 0;
  Stores stores = Stores::kPlain;
};

using ReduceFn = void (*)(const ReduceArgs&);
// out[i] = in[i] * factor, truncated and saturated. `out` may be `in`.
using ScaleFn = void (*)(const void* in, void* out, size_t count, double factor);
// Between a 16-bit float type and float.
using ConvertFn = void (*)(const void* in, void* out, size_t count);
// memcpy of at least one register.
using CopyFn = void (*)(void* to, const void* from, size_t bytes);

inline constexpr int kReduceOpCount = 6;

// Thread safety: constant once built.
struct Table {
  const char* name = "";
  ReduceFn reduce[kDTypeCount][kReduceOpCount] = {};         // ignores pre and post
  ReduceFn reduce_scaled[kDTypeCount][kReduceOpCount] = {};  // floating-point types only
  ScaleFn scale[kDTypeCount] = {};                           // integer types only
  ConvertFn widen[kDTypeCount] = {};                         // 16-bit float types only
  ConvertFn narrow[kDTypeCount] = {};
  CopyFn copy = nullptr;
};

// The tables that this machine can run, best first. Never empty.
std::span<const Table> Tables();

const Table& ActiveTable();

// For tests. nullptr: back to the best one.
void ForceTable(const Table* table);

}  // namespace hvd::kernel
