// SPDX-License-Identifier: Apache-2.0
#include "hvd/wire/limit_check.h"

#include "hvd/wire/control.h"

namespace hvd::wire {
namespace {

bool IsValid(Device device) { return device == Device::kCpu || device == Device::kCuda; }

Status CheckShape(const Shape& shape, DType dtype) {
  if (shape.size() > kMaxDims) {
    return Fail(Code::kInvalidArgument, "a tensor has {} dimensions, at most {} are supported", shape.size(), kMaxDims);
  }
  // A zero makes every product representable, but the other dimensions are multiplied by peers' first dimensions later,
  // so they must fit by themselves.
  int64_t bytes = static_cast<int64_t>(SizeOf(dtype));
  for (const int64_t dim : shape) {
    if (dim < 0) return Fail(Code::kInvalidArgument, "shape {} has a negative dimension", ToString(shape));
    if (dim != 0 && __builtin_mul_overflow(bytes, dim, &bytes)) {
      return Fail(Code::kInvalidArgument, "a {} tensor of shape {} has too many bytes to count", NameOf(dtype),
                  ToString(shape));
    }
  }
  return {};
}

}  // namespace

Status CheckName(std::string_view name) {
  if (name.size() <= kMaxNameBytes) return {};
  return Fail(Code::kInvalidArgument, "a tensor name has {} bytes, at most {} are supported: '{}...'", name.size(),
              kMaxNameBytes, name.substr(0, 64));
}

Status CheckSignature(const Signature& signature) {
  if (!IsValid(signature.op)) {
    return Fail(Code::kInvalidArgument, "unknown operation {}", static_cast<int>(signature.op));
  }
  if (!hvd::IsValid(signature.dtype)) {
    return Fail(Code::kInvalidArgument, "unknown data type {}", static_cast<int>(signature.dtype));
  }
  if (!hvd::IsValid(signature.reduce_op)) {
    return Fail(Code::kInvalidArgument, "unknown reduction {}", static_cast<int>(signature.reduce_op));
  }
  if (!IsValid(signature.device)) {
    return Fail(Code::kInvalidArgument, "unknown device type {}", static_cast<int>(signature.device));
  }
  for (const int64_t number : signature.numbers) {
    if (number < 0) return Fail(Code::kInvalidArgument, "{} of {} is negative", number, NameOf(signature.op));
  }
  return CheckShape(signature.shape, signature.dtype);
}

Status CheckTuning(const Tuning& tuning) {
  const auto in_range = [](int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; };
  if (in_range(tuning.chunk_percent, 1, Tuning::kMostPercent) && in_range(tuning.eager_bytes, 0, Tuning::kMostEager) &&
      in_range(tuning.spin_us, 0, Tuning::kMostSpin)) {
    return {};
  }
  return Fail(Code::kInvalidArgument, "no tuning: chunks of {} %, {} bytes beside marks, {} us of spinning",
              tuning.chunk_percent, tuning.eager_bytes, tuning.spin_us);
}

Status Check(const Request& request) {
  HVD_RETURN_IF_ERROR(CheckName(request.name));
  return CheckSignature(request.signature);
}

}  // namespace hvd::wire
