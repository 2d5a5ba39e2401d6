// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernel/reference.h"

namespace hvd::kernel::reference {

Buffer Reduce(ReduceOp op, DType type, const std::vector<const void*>& sources, const std::vector<int>& group_sizes,
              size_t count, Scale scale) {
  switch (type) {
#define HVD_CASE(dtype) \
  case dtype:           \
    return ReduceTyped<dtype>(op, sources, group_sizes, count, scale);
    HVD_CASE(DType::kUInt8)
    HVD_CASE(DType::kInt8)
    HVD_CASE(DType::kUInt16)
    HVD_CASE(DType::kInt16)
    HVD_CASE(DType::kInt32)
    HVD_CASE(DType::kInt64)
    HVD_CASE(DType::kFloat16)
    HVD_CASE(DType::kFloat32)
    HVD_CASE(DType::kFloat64)
    HVD_CASE(DType::kBool)
    HVD_CASE(DType::kBFloat16)
#undef HVD_CASE
  }
  return {};
}

namespace {

// Where a floating-point format of `bits` bits keeps its mantissa.
uint64_t RandomFloatBits(int bits, int mantissa_bits, std::mt19937_64& random) {
  const uint64_t any = random() >> (64 - bits);
  const uint64_t sign = uint64_t{1} << (bits - 1);
  const uint64_t mantissa = (uint64_t{1} << mantissa_bits) - 1;
  const uint64_t infinity = (sign - 1) & ~mantissa;
  switch (random() % 10) {
    case 0:
      return any | infinity | 1;  // a NaN
    case 1:
      return (any & sign) | infinity;
    case 2:
      return any & sign;  // a zero
    case 3:
      return any & (sign | mantissa);  // a denormal
    case 4:
      return any;
    default: {
      // Near 1, so that sums and products stay in range.
      const uint64_t one = (infinity >> 1) & ~mantissa;
      return (any & (sign | mantissa)) | one;
    }
  }
}

}  // namespace

Buffer RandomElements(DType type, size_t count, std::mt19937_64& random) {
  const size_t size = SizeOf(type);
  Buffer result(count * size);
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    if (type == DType::kFloat16) bits = RandomFloatBits(16, 10, random);
    if (type == DType::kBFloat16) bits = RandomFloatBits(16, 7, random);
    if (type == DType::kFloat32) bits = RandomFloatBits(32, 23, random);
    if (type == DType::kFloat64) bits = RandomFloatBits(64, 52, random);
    if (type == DType::kBool) bits &= 1;
    std::memcpy(result.data() + i * size, &bits, size);
  }
  return result;
}

}  // namespace hvd::kernel::reference
