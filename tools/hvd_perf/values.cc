// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "hvd/hvd.h"

namespace hvd_perf {
namespace {

// 16-bit floats travel as their bits. Only zero and normal numbers occur here.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

template <typename T>
T Encode(double v) {
  return static_cast<T>(v);
}
template <>
BFloat Encode(double v) {
  return {static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16)};
}
template <>
Half Encode(double v) {
  if (v == 0) return {0};
  const uint32_t f = std::bit_cast<uint32_t>(static_cast<float>(v));
  return {static_cast<uint16_t>((f >> 16 & 0x8000) | (((f >> 23 & 0xff) - 112) << 10) | (f >> 13 & 0x3ff))};
}

template <typename T>
double Decode(T v) {
  return static_cast<double>(v);
}
template <>
double Decode(BFloat v) {
  return std::bit_cast<float>(uint32_t{v.bits} << 16);
}
template <>
double Decode(Half v) {
  if ((v.bits & 0x7fff) == 0) return 0;
  return std::bit_cast<float>((v.bits & 0x8000u) << 16 | ((v.bits >> 10 & 0x1fu) + 112) << 23 |
                              (v.bits & 0x3ffu) << 13);
}

template <typename F>
auto Visit(int32_t dtype, F f) {
  switch (dtype) {
    case HVD_UINT8:
      return f(uint8_t{});
    case HVD_INT8:
      return f(int8_t{});
    case HVD_UINT16:
      return f(uint16_t{});
    case HVD_INT16:
      return f(int16_t{});
    case HVD_INT32:
      return f(int32_t{});
    case HVD_INT64:
      return f(int64_t{});
    case HVD_FLOAT16:
      return f(Half{});
    case HVD_FLOAT64:
      return f(double{});
    case HVD_BOOL:
      return f(bool{});
    case HVD_BFLOAT16:
      return f(BFloat{});
    default:
      return f(float{});
  }
}

// One rank holds a 2 and the others 1 in a product; else 0, 1 or 2 (0 or 1 for bool).
double InputValue(uint64_t i, int32_t dtype, int32_t reduce_op, int rank, int ranks) {
  if (reduce_op == HVD_PRODUCT) return i % ranks == static_cast<uint64_t>(rank) ? 2 : 1;
  const uint64_t v = (i + rank) % 3;
  return dtype == HVD_BOOL ? v == 0 : v;
}

double Reduced(uint64_t i, int32_t dtype, int32_t reduce_op, int ranks) {
  double v = InputValue(i, dtype, reduce_op, 0, ranks);
  for (int rank = 1; rank < ranks; ++rank) {
    const double x = InputValue(i, dtype, reduce_op, rank, ranks);
    if (reduce_op == HVD_MIN) v = std::min(v, x);
    if (reduce_op == HVD_MAX) v = std::max(v, x);
    if (reduce_op == HVD_PRODUCT) v *= x;
    if (reduce_op == HVD_SUM || reduce_op == HVD_AVERAGE) v += x;
  }
  return reduce_op == HVD_AVERAGE ? v / ranks : v;
}

// An average need not be representable: one unit for integers, one part in 100 for the shortest float.
double Tolerance(int32_t dtype, int32_t reduce_op) {
  if (reduce_op != HVD_AVERAGE) return 0;
  const bool is_float = dtype == HVD_FLOAT16 || dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64 || dtype == HVD_BFLOAT16;
  return is_float ? 0.02 : 1;
}

template <typename Expected>
std::string Compare(const void* data, uint64_t count, int32_t dtype, double tolerance, Expected expected) {
  return Visit(dtype, [&](auto type) -> std::string {
    const auto* values = static_cast<const decltype(type)*>(data);
    for (uint64_t i = 0; i < count; ++i) {
      const double got = Decode(values[i]), want = expected(i);
      if (!(std::abs(got - want) <= tolerance)) {
        return "element " + std::to_string(i) + " is " + std::to_string(got) + ", expected " + std::to_string(want);
      }
    }
    return "";
  });
}

}  // namespace

uint64_t ElementSize(int32_t dtype) {
  return Visit(dtype, [](auto type) -> uint64_t { return sizeof(type); });
}

void FillInput(void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int rank, int ranks) {
  Visit(dtype, [&](auto type) {
    auto* values = static_cast<decltype(type)*>(data);
    for (uint64_t i = 0; i < count; ++i) {
      values[i] = Encode<decltype(type)>(InputValue(i, dtype, reduce_op, rank, ranks));
    }
  });
}

std::string CheckAllreduce(const void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int ranks) {
  return CheckReducescatter(data, count, dtype, reduce_op, ranks, 0);
}

std::string CheckReducescatter(const void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int ranks,
                               int rank) {
  double table[3];  // the expected value repeats: a product's is constant, all others follow i % 3
  for (uint64_t i = 0; i < 3; ++i) table[i] = Reduced(count * rank + i, dtype, reduce_op, ranks);
  return Compare(data, count, dtype, Tolerance(dtype, reduce_op), [&](uint64_t i) { return table[i % 3]; });
}

std::string CheckAlltoall(const void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int ranks, int rank) {
  return Compare(data, count * ranks, dtype, 0, [&](uint64_t i) {
    return InputValue(count * rank + i % count, dtype, reduce_op, static_cast<int>(i / count), ranks);
  });
}

std::string CheckAllgather(const void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int ranks) {
  return Compare(data, count * ranks, dtype, 0, [&](uint64_t i) {
    return InputValue(i % count, dtype, reduce_op, static_cast<int>(i / count), ranks);
  });
}

std::string CheckBroadcast(const void* data, uint64_t count, int32_t dtype, int32_t reduce_op, int ranks, int root) {
  return Compare(data, count, dtype, 0, [&](uint64_t i) { return InputValue(i, dtype, reduce_op, root, ranks); });
}

}  // namespace hvd_perf
