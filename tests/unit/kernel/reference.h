// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the kernels must give, written element by element and with no regard to speed: numbers are decoded and encoded
// by exact arithmetic on doubles, and NaN and rounding rules are spelt out.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "hvd/kernel/kernel.h"

namespace hvd::kernel::reference {

using Buffer = std::vector<unsigned char>;

// A floating-point format of 16 bits.
template <int kMantissaBits, int kMinExponent>
struct Small {
  static constexpr uint16_t kMantissa = (1 << kMantissaBits) - 1;
  static constexpr uint16_t kExponent = 0x7FFF & ~kMantissa;

  static float Decode(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16;
    const int mantissa = bits & kMantissa;
    const int exponent = (bits & kExponent) >> kMantissaBits;
    if ((bits & kExponent) == kExponent) {
      return std::bit_cast<float>(sign | 0x7F800000u | uint32_t(mantissa) << (23 - kMantissaBits));
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, kMinExponent - kMantissaBits)
                      : std::ldexp(mantissa + (1 << kMantissaBits), exponent - 1 + kMinExponent - kMantissaBits);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(magnitude)) | sign);
  }

  static uint16_t Encode(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint16_t sign = (bits >> 16) & 0x8000;
    if (std::isnan(value)) {
      const uint16_t payload = (bits >> (23 - kMantissaBits)) & kMantissa;
      return sign | kExponent | payload | 1 << (kMantissaBits - 1);
    }
    if (std::isinf(value)) return sign | kExponent;
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude == 0) return sign;
    const int exponent = std::max(std::ilogb(magnitude), kMinExponent);
    // In units of the last place; the default rounding mode is to nearest even.
    const auto units = static_cast<int64_t>(std::nearbyint(std::ldexp(magnitude, kMantissaBits - exponent)));
    // Rounding up to the next power of two carries into the exponent by itself.
    const int64_t encoded = (int64_t{exponent - kMinExponent} << kMantissaBits) + units;
    return sign | static_cast<uint16_t>(std::min<int64_t>(encoded, kExponent));
  }
};
using Half = Small<10, -14>;
using Brain = Small<7, -126>;

template <DType kType>
struct Traits;
#define HVD_PLAIN(dtype, type)                   \
  template <>                                    \
  struct Traits<dtype> {                         \
    using T = type;                              \
    using Acc = type;                            \
    static Acc Decode(T value) { return value; } \
    static T Encode(Acc value) { return value; } \
  };
HVD_PLAIN(DType::kUInt8, uint8_t)
HVD_PLAIN(DType::kInt8, int8_t)
HVD_PLAIN(DType::kUInt16, uint16_t)
HVD_PLAIN(DType::kInt16, int16_t)
HVD_PLAIN(DType::kInt32, int32_t)
HVD_PLAIN(DType::kInt64, int64_t)
HVD_PLAIN(DType::kFloat32, float)
HVD_PLAIN(DType::kFloat64, double)
#undef HVD_PLAIN
#define HVD_SMALL(dtype, small)                                 \
  template <>                                                   \
  struct Traits<dtype> {                                        \
    using T = uint16_t;                                         \
    using Acc = float;                                          \
    static Acc Decode(T value) { return small::Decode(value); } \
    static T Encode(Acc value) { return small::Encode(value); } \
  };
HVD_SMALL(DType::kFloat16, Half)
HVD_SMALL(DType::kBFloat16, Brain)
#undef HVD_SMALL
template <>
struct Traits<DType::kBool> {
  using T = uint8_t;
  using Acc = uint8_t;
  static Acc Decode(T value) { return value != 0; }
  static T Encode(Acc value) { return value; }
};

template <class F>
F Quiet(F nan) {
  if constexpr (sizeof(F) == 4) {
    return std::bit_cast<F>(std::bit_cast<uint32_t>(nan) | 1u << 22);
  } else {
    return std::bit_cast<F>(std::bit_cast<uint64_t>(nan) | uint64_t{1} << 51);
  }
}

template <class Acc>
Acc Combine(ReduceOp op, Acc a, Acc b) {
  if constexpr (std::is_floating_point_v<Acc>) {
    const bool arithmetic = op != ReduceOp::kMin && op != ReduceOp::kMax;
    if (std::isnan(a)) return arithmetic ? Quiet(a) : a;
    if (std::isnan(b)) return arithmetic ? Quiet(b) : b;
    if (op == ReduceOp::kProduct) return a * b;
    if (arithmetic) return a + b;
  } else {
    const auto ua = static_cast<uint64_t>(a);
    const auto ub = static_cast<uint64_t>(b);
    if (op == ReduceOp::kProduct) return static_cast<Acc>(ua * ub);
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) return static_cast<Acc>(ua + ub);
  }
  if (op == ReduceOp::kMin) return b < a ? b : a;
  return b > a ? b : a;
}

template <class Acc>
Acc Times(Acc value, double factor) {
  if (factor == 1.0) return value;
  if constexpr (std::is_floating_point_v<Acc>) {
    if (std::isnan(value)) return Quiet(value);
    return value * static_cast<Acc>(factor);
  } else {
    const double scaled = static_cast<double>(value) * factor;
    if (std::isnan(scaled)) return 0;
    // Compared where neither bound is rounded: the upper one, plus one, is a power of two.
    if (scaled >= std::ldexp(1.0, std::numeric_limits<Acc>::digits)) return std::numeric_limits<Acc>::max();
    if (scaled < static_cast<double>(std::numeric_limits<Acc>::min())) return std::numeric_limits<Acc>::min();
    return static_cast<Acc>(scaled);
  }
}

// group_sizes: see ReduceGrouped.
template <DType kType>
Buffer ReduceTyped(ReduceOp op, const std::vector<const void*>& sources, const std::vector<int>& group_sizes,
                   size_t count, Scale scale) {
  using X = Traits<kType>;
  using T = typename X::T;
  using Acc = typename X::Acc;
  Buffer result(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const auto bits = [&](size_t k) {
      T value;
      std::memcpy(&value, static_cast<const char*>(sources[k]) + i * sizeof(T), sizeof(T));
      return value;
    };
    T stored{};
    Acc total{};
    size_t k = 0;
    for (size_t g = 0; g < group_sizes.size(); ++g) {
      Acc acc = Times(X::Decode(bits(k)), scale.pre);
      // A single source that is neither scaled nor combined is copied as it is.
      stored = group_sizes[g] == 1 && scale.pre == 1.0 ? bits(k) : X::Encode(acc);
      for (int n = 1; n < group_sizes[g]; ++n) {
        acc = Combine(op, acc, Times(X::Decode(bits(k + n)), scale.pre));
        stored = X::Encode(acc);
      }
      if (group_sizes.size() > 1) acc = X::Decode(stored);
      total = g == 0 ? acc : Combine(op, total, acc);
      k += static_cast<size_t>(group_sizes[g]);
    }
    total = Times(total, scale.post);
    if (sources.size() > 1 || scale.pre != 1.0 || scale.post != 1.0) stored = X::Encode(total);
    std::memcpy(result.data() + i * sizeof(T), &stored, sizeof(T));
  }
  return result;
}

Buffer Reduce(ReduceOp op, DType type, const std::vector<const void*>& sources, const std::vector<int>& group_sizes,
              size_t count, Scale scale);

// Random elements: any bits, small numbers that can be summed, and for floating-point types a good share of NaNs of
// many payloads, infinities, zeros of both signs and denormals.
Buffer RandomElements(DType type, size_t count, std::mt19937_64& random);

}  // namespace hvd::kernel::reference
