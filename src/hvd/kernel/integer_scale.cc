// SPDX-License-Identifier: Apache-2.0
// Integers times a double factor.
#include "hvd/kernel/dispatch.h"
#include "hvd/kernel/highway_config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hvd/kernel/integer_scale.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <string.h>

#include "hvd/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

// The largest int64_t is not a double: 2^63 and above are chosen by comparison, after a conversion that is in range.
HWY_INLINE int64_t ScaleOne(int64_t value, double factor) {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  const double scaled = static_cast<double>(value) * factor;
  double in_range = scaled == scaled ? scaled : 0.0;
  in_range = in_range < -kTwoTo63 ? -kTwoTo63 : in_range;
  in_range = in_range >= kTwoTo63 ? 0.0 : in_range;
  const int64_t truncated = static_cast<int64_t>(in_range);
  return scaled >= kTwoTo63 ? INT64_MAX : truncated;
}

// A plain loop that the compiler vectorises as each target allows (layer.cmake gives this file the flags for it).
void ScaleInt64(const void* in, void* out, size_t count, double factor) {
  const char* from = static_cast<const char*>(in);
  char* to = static_cast<char*>(out);
  // Through a small buffer: buffers may be unaligned, and `out` may be `in`.
  constexpr size_t kBlock = 128;
  int64_t block[kBlock];
  for (size_t i = 0; i < count; i += kBlock) {
    const size_t n = count - i < kBlock ? count - i : kBlock;
    memcpy(block, from + i * sizeof(int64_t), n * sizeof(int64_t));
    for (size_t k = 0; k < n; ++k) block[k] = ScaleOne(block[k], factor);
    memcpy(to + i * sizeof(int64_t), block, n * sizeof(int64_t));
  }
}

#if HWY_TARGET == HWY_SCALAR

template <class T>
void ScaleSmall(const void* in, void* out, size_t count, double factor) {
  constexpr T kLow = T(-1) < T(0) ? T(T(1) << (sizeof(T) * 8 - 1)) : T(0);
  constexpr T kHigh = T(~kLow);
  for (size_t i = 0; i < count; ++i) {
    double scaled = static_cast<double>(Lanes<T>::Load(static_cast<const T*>(in) + i)) * factor;
    scaled = scaled == scaled ? scaled : 0.0;
    scaled = scaled < kLow ? kLow : scaled > kHigh ? kHigh : scaled;
    Lanes<T>::Store(static_cast<T>(scaled), static_cast<T*>(out) + i);
  }
}

#else

// Up to 32 bits. Both of Highway's demotions saturate: double to int32_t (truncating), and that to smaller types.
template <class T>
void ScaleSmall(const void* in, void* out, size_t count, double factor) {
  using D64 = hn::ScalableTag<double>;
  using D32 = hn::Rebind<int32_t, D64>;
  using L = RawLanes<hn::Rebind<T, D64> >;
  const auto scale = [factor](typename L::Raw raw) HWY_ATTR {
    hn::Vec<D32> wide;
    if constexpr (sizeof(T) == 4) {
      wide = raw;
    } else {
      wide = hn::PromoteTo(D32(), raw);
    }
    const auto product = hn::Mul(hn::PromoteTo(D64(), wide), hn::Set(D64(), factor));
    const auto scaled = hn::DemoteTo(D32(), hn::IfThenElseZero(hn::Eq(product, product), product));
    if constexpr (sizeof(T) == 4) {
      return scaled;
    } else {
      return hn::DemoteTo(hn::Rebind<T, D64>(), scaled);
    }
  };
  const T* from = static_cast<const T*>(in);
  T* to = static_cast<T*>(out);
  constexpr size_t n = hn::MaxLanes(D64());
  size_t i = 0;
  for (; i + n <= count; i += n) L::Store(scale(L::Load(from + i)), to + i);
  if (i < count) L::StoreFirst(count - i, scale(L::LoadFirst(count - i, from + i)), to + i);
}

#endif

void FillIntegerScale(Table& table) {
  table.scale[static_cast<int>(DType::kUInt8)] = ScaleSmall<uint8_t>;
  table.scale[static_cast<int>(DType::kInt8)] = ScaleSmall<int8_t>;
  table.scale[static_cast<int>(DType::kUInt16)] = ScaleSmall<uint16_t>;
  table.scale[static_cast<int>(DType::kInt16)] = ScaleSmall<int16_t>;
  table.scale[static_cast<int>(DType::kInt32)] = ScaleSmall<int32_t>;
  table.scale[static_cast<int>(DType::kInt64)] = ScaleInt64;
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
