// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <limits>

#include "hvd/kernel/kernel.h"

namespace hvd::kernel {
namespace {

template <typename T>
void Fill(void* to, size_t count, T value) {
  std::fill_n(static_cast<T*>(to), count, value);
}

template <typename T>
void FillInteger(ReduceOp op, void* to, size_t count) {
  using Limits = std::numeric_limits<T>;
  Fill<T>(to, count,
          op == ReduceOp::kMin   ? Limits::max()
          : op == ReduceOp::kMax ? Limits::min()
                                 : T(op == ReduceOp::kProduct));
}

template <typename T>
void FillFloat(ReduceOp op, void* to, size_t count) {
  const T infinity = std::numeric_limits<T>::infinity();
  Fill<T>(to, count, op == ReduceOp::kMin ? infinity : op == ReduceOp::kMax ? -infinity : T(op == ReduceOp::kProduct));
}

// By bits: infinity, minus infinity, one.
void FillHalf(ReduceOp op, void* to, size_t count, uint16_t infinity, uint16_t one) {
  const auto minus = static_cast<uint16_t>(infinity | 0x8000);
  Fill<uint16_t>(to, count,
                 op == ReduceOp::kMin       ? infinity
                 : op == ReduceOp::kMax     ? minus
                 : op == ReduceOp::kProduct ? one
                                            : uint16_t{0});
}

}  // namespace

void FillNeutral(ReduceOp op, DType type, void* to, size_t count) {
  switch (type) {
    case DType::kUInt8:
      return FillInteger<uint8_t>(op, to, count);
    case DType::kInt8:
      return FillInteger<int8_t>(op, to, count);
    case DType::kUInt16:
      return FillInteger<uint16_t>(op, to, count);
    case DType::kInt16:
      return FillInteger<int16_t>(op, to, count);
    case DType::kInt32:
      return FillInteger<int32_t>(op, to, count);
    case DType::kInt64:
      return FillInteger<int64_t>(op, to, count);
    case DType::kFloat16:
      return FillHalf(op, to, count, 0x7c00, 0x3c00);
    case DType::kBFloat16:
      return FillHalf(op, to, count, 0x7f80, 0x3f80);
    case DType::kFloat32:
      return FillFloat<float>(op, to, count);
    case DType::kFloat64:
      return FillFloat<double>(op, to, count);
    case DType::kBool:
      return Fill<uint8_t>(to, count, op == ReduceOp::kMin);
  }
}

}  // namespace hvd::kernel
