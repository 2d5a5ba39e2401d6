// SPDX-License-Identifier: Apache-2.0
// Per target. Reductions of registers of float or double, and scaling by factors.

#if defined(HVD_KERNEL_FLOAT_OPS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_KERNEL_FLOAT_OPS_INL
#undef HVD_KERNEL_FLOAT_OPS_INL
#else
#define HVD_KERNEL_FLOAT_OPS_INL
#endif

#include "hvd/kernel/ordered-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

struct FloatSum {
  template <class Reg>
  static HWY_INLINE Reg Do(Reg acc, Reg next) {
    return OrderedAdd(acc, next);
  }
};

struct FloatProduct {
  template <class Reg>
  static HWY_INLINE Reg Do(Reg acc, Reg next) {
    return OrderedMul(acc, next);
  }
};

// Not the min and max instructions: those differ among processors about NaN and about the sign of zero.
#if HWY_TARGET == HWY_SCALAR
struct FloatMin {
  template <class Reg>
  static HWY_INLINE Reg Do(Reg acc, Reg next) {
    return acc <= next || acc != acc ? acc : next;
  }
};
struct FloatMax {
  template <class Reg>
  static HWY_INLINE Reg Do(Reg acc, Reg next) {
    return acc >= next || acc != acc ? acc : next;
  }
};
#else
struct FloatMin {
  template <class Reg>
  static HWY_INLINE Reg Do(Reg acc, Reg next) {
    return hn::IfThenElse(hn::Or(hn::Le(acc, next), hn::IsNaN(acc)), acc, next);
  }
};
struct FloatMax {
  template <class Reg>
  static HWY_INLINE Reg Do(Reg acc, Reg next) {
    return hn::IfThenElse(hn::Or(hn::Ge(acc, next), hn::IsNaN(acc)), acc, next);
  }
};
#endif

// L: the lanes. F: lanes of the accumulation type, float or double.
template <class L, class F>
struct FloatScale {
  using Reg = typename L::Reg;

  explicit HWY_INLINE FloatScale(const ReduceArgs& args)
      : pre(F::Set(static_cast<typename F::T>(args.pre))),
        post(F::Set(static_cast<typename F::T>(args.post))),
        has_pre(args.pre != 1.0),
        has_post(args.post != 1.0) {}
  HWY_INLINE Reg Pre(Reg value) const { return has_pre ? OrderedMul(value, pre) : value; }
  HWY_INLINE Reg Post(Reg value) const { return has_post ? OrderedMul(value, post) : value; }

  const Reg pre;
  const Reg post;
  const bool has_pre;
  const bool has_post;
};

template <class L, class F>
void FillFloatType(Table& table, DType type) {
  const auto fill = [&](ReduceOp op, ReduceFn plain, ReduceFn scaled) {
    table.reduce[static_cast<int>(type)][static_cast<int>(op)] = plain;
    table.reduce_scaled[static_cast<int>(type)][static_cast<int>(op)] = scaled;
  };
  using Scaled = FloatScale<L, F>;
  fill(ReduceOp::kAverage, ReduceLoop<L, FloatSum>, ReduceLoop<L, FloatSum, Scaled>);
  fill(ReduceOp::kSum, ReduceLoop<L, FloatSum>, ReduceLoop<L, FloatSum, Scaled>);
  fill(ReduceOp::kMin, ReduceLoop<L, FloatMin>, ReduceLoop<L, FloatMin, Scaled>);
  fill(ReduceOp::kMax, ReduceLoop<L, FloatMax>, ReduceLoop<L, FloatMax, Scaled>);
  fill(ReduceOp::kProduct, ReduceLoop<L, FloatProduct>, ReduceLoop<L, FloatProduct, Scaled>);
}

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
