// SPDX-License-Identifier: Apache-2.0
// Per target. Addition and multiplication whose operands stay in the written order: of two NaNs the first one is the
// result. Compilers hold + and * for commutative and swap operands as suits them, differently in a vector loop, in its
// tail and in each target, so the instruction is written out.

#if defined(HVD_KERNEL_ORDERED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_KERNEL_ORDERED_INL
#undef HVD_KERNEL_ORDERED_INL
#else
#define HVD_KERNEL_ORDERED_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_ARCH_X86

#if HWY_TARGET == HWY_SCALAR
#define HVD_ORDERED(name, type, suffix)       \
  HWY_INLINE type name(type a, type b) {      \
    asm(suffix " %1, %0" : "+x"(a) : "x"(b)); \
    return a;                                 \
  }
HVD_ORDERED(OrderedAdd, float, "addss")
HVD_ORDERED(OrderedMul, float, "mulss")
HVD_ORDERED(OrderedAdd, double, "addsd")
HVD_ORDERED(OrderedMul, double, "mulsd")
#elif HWY_TARGET == HWY_SSE4
#define HVD_ORDERED(name, type, suffix)                                                                                \
  HWY_INLINE hn::Vec<hn::ScalableTag<type>> name(hn::Vec<hn::ScalableTag<type>> a, hn::Vec<hn::ScalableTag<type>> b) { \
    asm(suffix " %1, %0" : "+x"(a.raw) : "x"(b.raw));                                                                  \
    return a;                                                                                                          \
  }
HVD_ORDERED(OrderedAdd, float, "addps")
HVD_ORDERED(OrderedMul, float, "mulps")
HVD_ORDERED(OrderedAdd, double, "addpd")
HVD_ORDERED(OrderedMul, double, "mulpd")
#else
#define HVD_ORDERED(name, type, suffix)                                                                                \
  HWY_INLINE hn::Vec<hn::ScalableTag<type>> name(hn::Vec<hn::ScalableTag<type>> a, hn::Vec<hn::ScalableTag<type>> b) { \
    asm("v" suffix " %1, %0, %0" : "+v"(a.raw) : "v"(b.raw));                                                          \
    return a;                                                                                                          \
  }
HVD_ORDERED(OrderedAdd, float, "addps")
HVD_ORDERED(OrderedMul, float, "mulps")
HVD_ORDERED(OrderedAdd, double, "addpd")
HVD_ORDERED(OrderedMul, double, "mulpd")
#endif
#undef HVD_ORDERED

#elif HWY_TARGET == HWY_SCALAR

template <class T>
HWY_INLINE T OrderedAdd(T a, T b) {
  return a + (__builtin_isnan(a) ? T(0) : b);
}
template <class T>
HWY_INLINE T OrderedMul(T a, T b) {
  return a * (__builtin_isnan(a) ? T(0) : b);
}

#else

// A NaN plus anything finite is that NaN made quiet, whatever the order.
template <class V>
HWY_INLINE V OrderedAdd(V a, V b) {
  const auto nan = hn::IsNaN(a);
  return hn::Add(a, hn::IfThenZeroElse(nan, b));
}
template <class V>
HWY_INLINE V OrderedMul(V a, V b) {
  const auto nan = hn::IsNaN(a);
  return hn::Mul(a, hn::IfThenZeroElse(nan, b));
}

#endif

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
