// SPDX-License-Identifier: Apache-2.0
#include "hvd/kernel/adasum.h"

#include <cstdint>
#include <cstring>
#include <limits>

namespace hvd::kernel {
namespace {

float FromBFloat16(uint16_t bits) { return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16); }

uint16_t ToBFloat16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float FromFloat16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00) return __builtin_bit_cast(float, sign | 0x7f800000u | ((rest & 0x3ff) << 13));
  if (rest >= 0x400) return __builtin_bit_cast(float, sign | ((rest << 13) + (112u << 23)));
  // Denormal: a multiple of 2^-24, exact in float.
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, static_cast<float>(rest) * 0x1p-24f));
}

uint16_t ToFloat16(float value) {
  const auto bits = __builtin_bit_cast(uint32_t, value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Below the smallest normal: adding 0.5 rounds to a multiple of 2^-24.
    const float sum = __builtin_bit_cast(float, magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, sum) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xfff + odd) >> 13));
}

struct Float16 {
  using Stored = uint16_t;
  using Held = float;
  static float Load(uint16_t bits) { return FromFloat16(bits); }
  static uint16_t Store(float value) { return ToFloat16(value); }
};
struct BFloat16 {
  using Stored = uint16_t;
  using Held = float;
  static float Load(uint16_t bits) { return FromBFloat16(bits); }
  static uint16_t Store(float value) { return ToBFloat16(value); }
};
template <typename T>
struct Plain {
  using Stored = T;
  using Held = T;
  static T Load(T value) { return value; }
  static T Store(T value) { return value; }
};

// Tensors may have any alignment.
template <typename T>
T Get(const void* from, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Put(void* to, size_t i, T value) {
  std::memcpy(static_cast<std::byte*>(to) + i * sizeof(T), &value, sizeof(T));
}

template <typename Codec>
void Load(const void* from, void* to, size_t count, double factor) {
  using Held = typename Codec::Held;
  const auto scale = static_cast<Held>(factor);
  for (size_t i = 0; i < count; ++i) {
    const Held value = Codec::Load(Get<typename Codec::Stored>(from, i));
    Put<Held>(to, i, factor == 1.0 ? value : value * scale);
  }
}

template <typename Codec>
void Store(const void* from, void* to, size_t count, double factor) {
  using Held = typename Codec::Held;
  const auto scale = static_cast<Held>(factor);
  for (size_t i = 0; i < count; ++i) {
    const Held value = Get<Held>(from, i);
    Put<typename Codec::Stored>(to, i, Codec::Store(factor == 1.0 ? value : value * scale));
  }
}

template <typename Held>
Dots Multiply(const void* a, const void* b, size_t count) {
  Dots dots;
  for (size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(Get<Held>(a, i));
    const auto y = static_cast<double>(Get<Held>(b, i));
    dots.ab += x * y;
    dots.aa += x * x;
    dots.bb += y * y;
  }
  return dots;
}

// A vector of zeros adds nothing, whatever its factor.
double Factor(double ab, double own) { return own == 0 ? 1.0 : 1.0 - ab / (2.0 * own); }

template <typename Held>
void Combine(void* a, const void* b, size_t count, const Dots& dots) {
  // In double: the factor of a tiny vector beside a large one is more than a float can hold, their product is not.
  const double of_a = Factor(dots.ab, dots.aa);
  const double of_b = Factor(dots.ab, dots.bb);
  for (size_t i = 0; i < count; ++i) {
    Put<Held>(a, i, static_cast<Held>(of_a * Get<Held>(a, i) + of_b * Get<Held>(b, i)));
  }
}

}  // namespace

bool SupportsAdasum(DType type) {
  return type == DType::kFloat16 || type == DType::kBFloat16 || type == DType::kFloat32 || type == DType::kFloat64;
}

DType AdasumType(DType type) { return type == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

void AdasumLoad(DType type, const void* from, void* to, size_t count, double factor) {
  switch (type) {
    case DType::kFloat16:
      return Load<Float16>(from, to, count, factor);
    case DType::kBFloat16:
      return Load<BFloat16>(from, to, count, factor);
    case DType::kFloat32:
      return Load<Plain<float>>(from, to, count, factor);
    default:
      return Load<Plain<double>>(from, to, count, factor);
  }
}

void AdasumStore(DType type, const void* from, void* to, size_t count, double factor) {
  switch (type) {
    case DType::kFloat16:
      return Store<Float16>(from, to, count, factor);
    case DType::kBFloat16:
      return Store<BFloat16>(from, to, count, factor);
    case DType::kFloat32:
      return Store<Plain<float>>(from, to, count, factor);
    default:
      return Store<Plain<double>>(from, to, count, factor);
  }
}

Dots AdasumDots(DType held, const void* a, const void* b, size_t count) {
  return held == DType::kFloat64 ? Multiply<double>(a, b, count) : Multiply<float>(a, b, count);
}

void AdasumCombine(DType held, void* a, const void* b, size_t count, const Dots& dots) {
  held == DType::kFloat64 ? Combine<double>(a, b, count, dots) : Combine<float>(a, b, count, dots);
}

}  // namespace hvd::kernel
