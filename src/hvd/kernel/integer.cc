// SPDX-License-Identifier: Apache-2.0
// Loops for integers and bool.
#include "hvd/kernel/dispatch.h"
#include "hvd/kernel/highway_config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hvd/kernel/integer.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "hvd/kernel/lanes-inl.h"
#include "hvd/kernel/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
struct IntegerSum {
  template <class T>
  static HWY_INLINE T Do(T acc, T next) {
    return static_cast<T>(acc + next);
  }
};
struct IntegerProduct {
  template <class T>
  static HWY_INLINE T Do(T acc, T next) {
    return static_cast<T>(uint64_t{acc} * uint64_t{next});
  }
};
struct IntegerMin {
  template <class T>
  static HWY_INLINE T Do(T acc, T next) {
    return next < acc ? next : acc;
  }
};
struct IntegerMax {
  template <class T>
  static HWY_INLINE T Do(T acc, T next) {
    return next > acc ? next : acc;
  }
};
#else
struct IntegerSum {
  template <class Reg>
  static HWY_INLINE Reg Do(Reg acc, Reg next) {
    return hn::Add(acc, next);
  }
};
struct IntegerProduct {
  template <class Reg>
  static HWY_INLINE Reg Do(Reg acc, Reg next) {
    using D = hn::DFromV<Reg>;
    if constexpr (sizeof(hn::TFromD<D>) == 1) {
      // No processor multiplies bytes: even and odd ones apart, as 16 bits.
      const hn::RepartitionToWide<D> wide;
      const auto a = hn::BitCast(wide, acc);
      const auto b = hn::BitCast(wide, next);
      const auto even = hn::And(a * b, hn::Set(wide, 0xFF));
      const auto odd = hn::ShiftLeft<8>(hn::ShiftRight<8>(a) * hn::ShiftRight<8>(b));
      return hn::BitCast(D(), hn::Or(even, odd));
    } else {
      return acc * next;
    }
  }
};
struct IntegerMin {
  template <class Reg>
  static HWY_INLINE Reg Do(Reg acc, Reg next) {
    return hn::Min(acc, next);
  }
};
struct IntegerMax {
  template <class Reg>
  static HWY_INLINE Reg Do(Reg acc, Reg next) {
    return hn::Max(acc, next);
  }
};
#endif

// Any byte but 0 is true, and true is stored as 1.
struct BoolLanes : Lanes<uint8_t> {
  using Base = Lanes<uint8_t>;
  static HWY_INLINE Reg Normal(Reg value) { return IntegerMin::Do(value, Base::Set(1)); }
  static HWY_INLINE Reg Load(const uint8_t* from) { return Normal(Base::Load(from)); }
  static HWY_INLINE Reg LoadFirst(size_t n, const uint8_t* from) { return Normal(Base::LoadFirst(n, from)); }
};

// U: the unsigned type of the same size; sums and products wrap, and are the same bits for both.
template <class T, class U>
void FillIntegerType(Table& table, DType type) {
  auto& row = table.reduce[static_cast<int>(type)];
  row[static_cast<int>(ReduceOp::kAverage)] = ReduceLoop<Lanes<U>, IntegerSum>;
  row[static_cast<int>(ReduceOp::kSum)] = ReduceLoop<Lanes<U>, IntegerSum>;
  row[static_cast<int>(ReduceOp::kProduct)] = ReduceLoop<Lanes<U>, IntegerProduct>;
  row[static_cast<int>(ReduceOp::kMin)] = ReduceLoop<Lanes<T>, IntegerMin>;
  row[static_cast<int>(ReduceOp::kMax)] = ReduceLoop<Lanes<T>, IntegerMax>;
}

void FillInteger(Table& table) {
  FillIntegerType<uint8_t, uint8_t>(table, DType::kUInt8);
  FillIntegerType<int8_t, uint8_t>(table, DType::kInt8);
  FillIntegerType<uint16_t, uint16_t>(table, DType::kUInt16);
  FillIntegerType<int16_t, uint16_t>(table, DType::kInt16);
  FillIntegerType<int32_t, uint32_t>(table, DType::kInt32);
  FillIntegerType<int64_t, uint64_t>(table, DType::kInt64);
  auto& row = table.reduce[static_cast<int>(DType::kBool)];
  row[static_cast<int>(ReduceOp::kMin)] = ReduceLoop<BoolLanes, IntegerMin>;
  row[static_cast<int>(ReduceOp::kMax)] = ReduceLoop<BoolLanes, IntegerMax>;
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
