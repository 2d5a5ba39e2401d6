// SPDX-License-Identifier: Apache-2.0
// Per target. float16 and bfloat16 as lanes of float. Stores round to nearest even; a NaN keeps its sign and the upper
// bits of its payload and becomes quiet, as the conversion instructions of processors that have them do it.

#if defined(HVD_KERNEL_HALF_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_KERNEL_HALF_INL
#undef HVD_KERNEL_HALF_INL
#else
#define HVD_KERNEL_HALF_INL
#endif

#include "hvd/kernel/half.h"
#include "hvd/kernel/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hvd::kernel::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

struct Bits16 : Lanes<uint16_t> {
  using Raw = uint16_t;
};

using Float16Codec = ScalarFloat16;
using BFloat16Codec = ScalarBFloat16;

#else

using DFloat = hn::ScalableTag<float>;
using DInt32 = hn::RebindToSigned<DFloat>;
using DUInt16 = hn::Rebind<uint16_t, DFloat>;
using DFloat16 = hn::Rebind<hwy::float16_t, DFloat>;
using VFloat = hn::Vec<DFloat>;
using VInt32 = hn::Vec<DInt32>;

struct Bits16 : RawLanes<DUInt16> {};

HWY_INLINE VInt32 Int(uint32_t value) { return hn::Set(DInt32(), static_cast<int32_t>(value)); }

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

struct Float16Codec {
  static HWY_INLINE VFloat Widen(Bits16::Raw half) { return hn::PromoteTo(DFloat(), hn::BitCast(DFloat16(), half)); }
  static HWY_INLINE Bits16::Raw Narrow(VFloat value) { return hn::BitCast(DUInt16(), hn::DemoteTo(DFloat16(), value)); }
};

#else

struct Float16Codec {
  static HWY_INLINE VFloat Widen(Bits16::Raw half) {
    const VInt32 bits = hn::PromoteTo(DInt32(), half);
    const VInt32 magnitude = hn::ShiftLeft<13>(hn::And(bits, Int(0x7FFF)));
    const VInt32 sign = hn::ShiftLeft<16>(hn::And(bits, Int(0x8000)));
    const VFloat number = hn::Mul(hn::BitCast(DFloat(), magnitude), hn::BitCast(DFloat(), Int(kTwoTo112)));
    const VInt32 quiet = hn::IfThenElseZero(hn::Gt(magnitude, Int(0x7C00 << 13)), Int(0x400000));
    const VInt32 special = hn::Or(hn::Or(magnitude, Int(kInfinity32)), quiet);
    const VInt32 result =
        hn::IfThenElse(hn::Gt(magnitude, Int((0x7C00 << 13) - 1)), special, hn::BitCast(DInt32(), number));
    return hn::BitCast(DFloat(), hn::Or(result, sign));
  }
  static HWY_INLINE Bits16::Raw Narrow(VFloat value) {
    const VInt32 bits = hn::BitCast(DInt32(), value);
    const VInt32 magnitude = hn::And(bits, Int(0x7FFFFFFF));
    const VInt32 sign = hn::And(hn::ShiftRight<16>(bits), Int(0x8000));
    const VInt32 shifted = hn::ShiftRight<13>(magnitude);
    const VFloat sum = hn::Add(hn::BitCast(DFloat(), magnitude), hn::BitCast(DFloat(), Int(kHalf)));
    const VInt32 denormal = hn::Sub(hn::BitCast(DInt32(), sum), Int(kHalf));
    const VInt32 odd = hn::And(shifted, Int(1));
    const VInt32 biased = hn::Sub(magnitude, Int((112u << 23) - 0xFFF));
    const VInt32 normal = hn::ShiftRight<13>(hn::Add(biased, odd));
    const VInt32 nan = hn::Or(Int(0x7E00), hn::And(shifted, Int(0x3FF)));
    VInt32 half = hn::IfThenElse(hn::Lt(magnitude, Int(kSmallestNormal16)), denormal, normal);
    half = hn::IfThenElse(hn::Gt(magnitude, Int(kOverflow16 - 1)), Int(0x7C00), half);
    half = hn::IfThenElse(hn::Gt(magnitude, Int(kInfinity32)), nan, half);
    return hn::DemoteTo(DUInt16(), hn::Or(half, sign));
  }
};

#endif

struct BFloat16Codec {
  static HWY_INLINE VFloat Widen(Bits16::Raw half) {
    return hn::BitCast(DFloat(), hn::ShiftLeft<16>(hn::PromoteTo(DInt32(), half)));
  }
  static HWY_INLINE Bits16::Raw Narrow(VFloat value) {
    const hn::RebindToUnsigned<DFloat> du;
    const auto bits = hn::BitCast(du, value);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF))));
    const auto nan = hn::Or(upper, hn::Set(du, 0x40));
    const auto half = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), nan, rounded);
    return hn::DemoteTo(DUInt16(), hn::BitCast(DInt32(), half));
  }
};

#endif

template <class Codec>
struct HalfLanes {
  using T = uint16_t;
  using Reg = Lanes<float>::Reg;
  static constexpr size_t kLanes = Lanes<float>::kLanes;

  static HWY_INLINE Reg Load(const T* from) { return Codec::Widen(Bits16::Load(from)); }
  static HWY_INLINE void Store(Reg value, T* to) { Bits16::Store(Codec::Narrow(value), to); }
  static HWY_INLINE Reg LoadFirst(size_t n, const T* from) { return Codec::Widen(Bits16::LoadFirst(n, from)); }
  static HWY_INLINE void StoreFirst(size_t n, Reg value, T* to) { Bits16::StoreFirst(n, Codec::Narrow(value), to); }
};

}  // namespace hvd::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
