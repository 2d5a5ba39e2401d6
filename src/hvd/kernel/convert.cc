// SPDX-License-Identifier: Apache-2.0
// Elements as a smaller type and back. The loops between float and the 16-bit types are the tables'; float64 goes
// through float, block by block.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "hvd/kernel/dispatch.h"
#include "hvd/kernel/fp_mode.h"
#include "hvd/kernel/kernel.h"

namespace hvd::kernel {
namespace {

constexpr size_t kBlock = 1024;

struct Block {
  double doubles[kBlock];
  float floats[kBlock];
};

// Of the two floats around a number that is none itself, the odd one. Rounding that to nearest even in fewer bits gives
// what rounding the number at once would have given, because no odd float lies half-way between two smaller ones.
float RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto back = static_cast<double>(nearest);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  const bool exact = back == value || value != value;
  if (exact || (bits & 1) != 0) return nearest;
  const bool larger = __builtin_fabs(back) > __builtin_fabs(value);
  return std::bit_cast<float>(larger ? bits - 1 : bits + 1);
}

}  // namespace

bool CanNarrow(DType wide, DType small) {
  return (wide == DType::kFloat32 || wide == DType::kFloat64) &&
         (small == DType::kFloat16 || small == DType::kBFloat16);
}

void Narrow(DType wide, const void* from, DType small, void* to, size_t count) {
  assert(CanNarrow(wide, small));
  const ScopedFpMode mode;
  const ConvertFn narrow = ActiveTable().narrow[static_cast<int>(small)];
  if (wide == DType::kFloat32) return narrow(from, to, count);
  Block block;
  for (size_t done = 0; done < count; done += kBlock) {
    const size_t n = std::min(kBlock, count - done);
    std::memcpy(block.doubles, static_cast<const double*>(from) + done, n * sizeof(double));
    for (size_t i = 0; i < n; ++i) block.floats[i] = RoundToOdd(block.doubles[i]);
    narrow(block.floats, static_cast<uint16_t*>(to) + done, n);
  }
}

void Widen(DType small, const void* from, DType wide, void* to, size_t count) {
  assert(CanNarrow(wide, small));
  const ScopedFpMode mode;
  const ConvertFn widen = ActiveTable().widen[static_cast<int>(small)];
  if (wide == DType::kFloat32) return widen(from, to, count);
  Block block;
  for (size_t done = 0; done < count; done += kBlock) {
    const size_t n = std::min(kBlock, count - done);
    widen(static_cast<const uint16_t*>(from) + done, block.floats, n);
    for (size_t i = 0; i < n; ++i) block.doubles[i] = static_cast<double>(block.floats[i]);
    std::memcpy(static_cast<double*>(to) + done, block.doubles, n * sizeof(double));
  }
}

}  // namespace hvd::kernel
