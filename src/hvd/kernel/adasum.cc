// SPDX-License-Identifier: Apache-2.0
#include "hvd/kernel/adasum.h"

#include <cstdint>
#include <cstring>

#include "hvd/kernel/fp_mode.h"
#include "hvd/kernel/half.h"

namespace hvd::kernel {
namespace {

template <typename Half>
struct Widened {
  using Stored = uint16_t;
  using Held = float;
  static float Load(uint16_t bits) { return Half::Widen(bits); }
  static uint16_t Store(float value) { return Half::Narrow(value); }
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
  const ScopedFpMode mode;
  switch (type) {
    case DType::kFloat16:
      return Load<Widened<ScalarFloat16>>(from, to, count, factor);
    case DType::kBFloat16:
      return Load<Widened<ScalarBFloat16>>(from, to, count, factor);
    case DType::kFloat32:
      return Load<Plain<float>>(from, to, count, factor);
    default:
      return Load<Plain<double>>(from, to, count, factor);
  }
}

void AdasumStore(DType type, const void* from, void* to, size_t count, double factor) {
  const ScopedFpMode mode;
  switch (type) {
    case DType::kFloat16:
      return Store<Widened<ScalarFloat16>>(from, to, count, factor);
    case DType::kBFloat16:
      return Store<Widened<ScalarBFloat16>>(from, to, count, factor);
    case DType::kFloat32:
      return Store<Plain<float>>(from, to, count, factor);
    default:
      return Store<Plain<double>>(from, to, count, factor);
  }
}

Dots AdasumDots(DType held, const void* a, const void* b, size_t count) {
  const ScopedFpMode mode;
  return held == DType::kFloat64 ? Multiply<double>(a, b, count) : Multiply<float>(a, b, count);
}

void AdasumCombine(DType held, void* a, const void* b, size_t count, const Dots& dots) {
  const ScopedFpMode mode;
  held == DType::kFloat64 ? Combine<double>(a, b, count, dots) : Combine<float>(a, b, count, dots);
}

}  // namespace hvd::kernel
