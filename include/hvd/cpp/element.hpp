// SPDX-License-Identifier: Apache-2.0
#pragma once
// Element types, reductions, and which C++ types are which.

#include <bit>
#include <concepts>
#include <cstdint>
#include <ranges>
#include <type_traits>

#include "hvd/hvd.h"

namespace hvd {

// Reductions. bool knows min (and) and max (or) only, adasum is for floating-point types.
enum class op : std::int32_t {
  average = HVD_AVERAGE,
  sum = HVD_SUM,
  adasum = HVD_ADASUM,
  min = HVD_MIN,
  max = HVD_MAX,
  product = HVD_PRODUCT,
};

// As what the float and double of an allreduce travel and are reduced. The result is that of casting, reducing and
// casting back, without the memory and the time for it. Other types travel as they are.
enum class wire : std::int32_t {
  same = 0,
  half = HVD_WIRE_FLOAT16,
  bfloat16 = HVD_WIRE_BFLOAT16,
};

namespace detail {

constexpr std::uint16_t half_from_float(float value) noexcept {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return sign | 0x7e00u | (bits >> 13 & 0x1ffu);  // not a number: keep what fits, quiet
  if (bits >= 0x477ff000u) return sign | 0x7c00u;                         // rounds to more than 65504, or is infinite
  std::uint32_t drop = 13;
  if (bits < 0x38800000u) {  // below 2^-14: counts multiples of 2^-24
    const std::uint32_t exponent = bits >> 23;
    if (exponent < 102) return sign;
    drop = 126 - exponent;
    bits = (bits & 0x7fffffu) | 0x800000u;
  } else {
    bits -= 112u << 23;  // the difference of the biases, 127 - 15
  }
  const std::uint32_t rest = bits & ((1u << drop) - 1);
  const std::uint32_t tie = 1u << (drop - 1);
  std::uint32_t kept = bits >> drop;
  kept += rest > tie || (rest == tie && (kept & 1u) != 0);
  return static_cast<std::uint16_t>(sign | kept);
}

constexpr float float_from_half(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1fu;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t rebased = exponent == 31 ? 0x7f800000u : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | rebased | fraction << 13);
}

constexpr std::uint16_t bfloat16_from_float(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace detail

// IEEE binary16, for storage: compute in float. Conversions round to the nearest, ties to even.
//
//     const hvd::half h(0.5f);
//     assert(h.bits == 0x3800 && static_cast<float>(h) == 0.5f);
struct half {
  std::uint16_t bits;

  half() = default;
  constexpr explicit half(float value) noexcept : bits(detail::half_from_float(value)) {}
  constexpr explicit operator float() const noexcept { return detail::float_from_half(bits); }
};

// The upper half of a float, for storage: compute in float. Conversions round to the nearest, ties to even.
//
//     const hvd::bfloat16 b(-2.0f);
//     assert(b.bits == 0xc000 && static_cast<float>(b) == -2.0f);
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  constexpr explicit bfloat16(float value) noexcept : bits(detail::bfloat16_from_float(value)) {}
  constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

namespace detail {

inline constexpr std::int32_t no_element = -1;

// Characters are integers to the language, but no numbers to anybody.
template <class T>
concept character = std::same_as<T, char> || std::same_as<T, wchar_t> || std::same_as<T, char8_t> ||
                    std::same_as<T, char16_t> || std::same_as<T, char32_t>;

template <class T>
consteval std::int32_t own_element_type() {
  if constexpr (std::same_as<T, bool>) return HVD_BOOL;
  if constexpr (std::same_as<T, float>) return HVD_FLOAT32;
  if constexpr (std::same_as<T, double>) return HVD_FLOAT64;
  if constexpr (std::same_as<T, half>) return HVD_FLOAT16;
  if constexpr (std::same_as<T, bfloat16>) return HVD_BFLOAT16;
  if constexpr (std::unsigned_integral<T> && !character<T> && !std::same_as<T, bool>) {
    return sizeof(T) == 1 ? HVD_UINT8 : sizeof(T) == 2 ? HVD_UINT16 : no_element;
  }
  if constexpr (std::signed_integral<T> && !character<T>) {
    switch (sizeof(T)) {
      case 1:
        return HVD_INT8;
      case 2:
        return HVD_INT16;
      case 4:
        return HVD_INT32;
      case 8:
        return HVD_INT64;
    }
  }
  return no_element;
}

}  // namespace detail

// The number that hvd.h gives to an element type. A type with the same bits becomes one, too:
// `template <> inline constexpr std::int32_t hvd::element_type<other::half> = HVD_FLOAT16;`
//
//     static_assert(hvd::element_type<float> == HVD_FLOAT32);
template <class T>
inline constexpr std::int32_t element_type = detail::own_element_type<T>();

// Types that operations work on: signed integers of 8 to 64 bits, unsigned ones of 8 and 16, float, double, bool, half
// and bfloat16.
//
//     static_assert(hvd::element<float> && hvd::element<hvd::half> && !hvd::element<char>);
template <class T>
concept element = std::is_trivially_copyable_v<T> && element_type<T> != detail::no_element;

// Ranges that can be read: their elements are contiguous in memory.
//
//     static_assert(hvd::readable<const std::vector<int>&> && !hvd::readable<std::list<int>&>);
template <class R>
concept readable =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && element<std::ranges::range_value_t<R>>;

// Readable ranges that outlive the call: lvalues and views. Operations that go on after the call returned need it.
//
//     static_assert(hvd::lasting<std::vector<int>&> && !hvd::lasting<std::vector<int>>);
template <class R>
concept lasting = readable<R> && std::ranges::borrowed_range<R>;

// Lasting ranges that can also be written.
//
//     static_assert(hvd::writable<std::span<int>> && !hvd::writable<std::span<const int>>);
template <class R>
concept writable = lasting<R> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

// Ranges of readable ranges, such as std::vector<std::vector<float>>: what operations on groups read.
//
//     static_assert(hvd::readable_group<std::vector<std::vector<int>>&> && !hvd::readable_group<std::vector<int>&>);
template <class R>
concept readable_group = std::ranges::input_range<R> && readable<std::ranges::range_reference_t<R>>;

// Readable groups whose elements outlive the call: the group does, or its members are views.
//
//     static_assert(hvd::lasting_group<std::vector<std::vector<int>>&>);
//     static_assert(hvd::lasting_group<std::vector<std::span<int>>>);
//     static_assert(!hvd::lasting_group<std::vector<std::vector<int>>>);
template <class R>
concept lasting_group = readable_group<R> && lasting<std::ranges::range_reference_t<R>> &&
                        (std::ranges::borrowed_range<R> || std::ranges::borrowed_range<std::ranges::range_value_t<R>>);

// Lasting groups whose elements can also be written.
//
//     static_assert(hvd::writable_group<std::vector<std::span<int>>>);
//     static_assert(!hvd::writable_group<const std::vector<std::vector<int>>&>);
template <class R>
concept writable_group = lasting_group<R> && writable<std::ranges::range_reference_t<R>>;

}  // namespace hvd
