// SPDX-License-Identifier: Apache-2.0
// Loops for float16 and bfloat16.
#include "hvd/kernel/dispatch.h"
#include "hvd/kernel/highway_config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hvd/kernel/half.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hvd/kernel/half-inl.h"
#include "hvd/kernel/reduce-inl.h"
// After the loops.
#include "hvd/kernel/float_ops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

template <class From, class To>
void Convert(const void* in, void* out, size_t count) {
  constexpr size_t n = From::kLanes;
  const auto* from = static_cast<const typename From::T*>(in);
  auto* to = static_cast<typename To::T*>(out);
  size_t i = 0;
  for (; i + n <= count; i += n) To::Store(From::Load(from + i), to + i);
  if (i < count) To::StoreFirst(count - i, From::LoadFirst(count - i, from + i), to + i);
}

template <class Codec>
void FillHalfType(Table& table, DType type) {
  using L = HalfLanes<Codec>;
  using F = Lanes<float>;
  FillFloatType<L, F>(table, type);
  table.widen[static_cast<int>(type)] = Convert<L, F>;
  table.narrow[static_cast<int>(type)] = Convert<F, L>;
}

void FillHalf(Table& table) {
  FillHalfType<Float16Codec>(table, DType::kFloat16);
  FillHalfType<BFloat16Codec>(table, DType::kBFloat16);
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
