// SPDX-License-Identifier: Apache-2.0
#pragma once
// float16 and bfloat16 in software, one at a time. Widening is exact. Narrowing rounds to nearest even; a NaN keeps its
// sign and the upper bits of its payload and becomes quiet.

#include <cstdint>

namespace hvd::kernel {

// Scaling by a power of two, and adding a number whose last bit is float16's smallest denormal, make the floating-point
// unit do the work for denormals (which therefore must not be flushed: fp_mode.h).
inline constexpr uint32_t kTwoTo112 = 239u << 23;
inline constexpr uint32_t kHalf = 126u << 23;              // 0.5f
inline constexpr uint32_t kSmallestNormal16 = 113u << 23;  // 2^-14
inline constexpr uint32_t kOverflow16 = 143u << 23;        // 2^16
inline constexpr uint32_t kInfinity32 = 255u << 23;

struct ScalarFloat16 {
  static float Widen(uint16_t half) {
    const uint32_t magnitude = (half & 0x7FFFu) << 13;
    uint32_t bits =
        __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) * __builtin_bit_cast(float, kTwoTo112));
    if ((half & 0x7C00u) == 0x7C00u) {
      bits = magnitude | kInfinity32 | ((half & 0x3FFu) ? 0x400000u : 0);
    }
    return __builtin_bit_cast(float, bits | (half & 0x8000u) << 16);
  }
  static uint16_t Narrow(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    uint32_t half;
    if (magnitude > kInfinity32) {
      half = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
    } else if (magnitude >= kOverflow16) {
      half = 0x7C00u;
    } else if (magnitude < kSmallestNormal16) {
      const float sum = __builtin_bit_cast(float, magnitude) + __builtin_bit_cast(float, kHalf);
      half = __builtin_bit_cast(uint32_t, sum) - kHalf;
    } else {
      half = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1)) >> 13;
    }
    return static_cast<uint16_t>(half | ((bits >> 16) & 0x8000u));
  }
};

struct ScalarBFloat16 {
  static float Widen(uint16_t half) { return __builtin_bit_cast(float, uint32_t{half} << 16); }
  static uint16_t Narrow(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    if ((bits & 0x7FFFFFFFu) > kInfinity32) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
  }
};

}  // namespace hvd::kernel
