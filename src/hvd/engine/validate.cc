// SPDX-License-Identifier: Apache-2.0
// Checks of one rank's arguments, before anybody else is involved.
#include <fmt/ranges.h>

#include "hvd/engine/engine.h"
#include "hvd/kernel/kernel.h"

namespace hvd::engine {
namespace {

std::string_view Title(OpKind op) {
  switch (op) {
    case OpKind::kAllreduce:
      return "Allreduce";
    case OpKind::kAllgather:
      return "Allgather";
    case OpKind::kBroadcast:
      return "Broadcast";
    case OpKind::kBarrier:
      return "Barrier";
    case OpKind::kAlltoall:
      return "Alltoall";
    case OpKind::kReducescatter:
      return "Reducescatter";
    case OpKind::kJoin:
      return "Join";
  }
  return "Operation";
}

Status CheckReduction(const wire::Signature& signature, const std::string& name) {
  if (!IsValid(signature.reduce_op)) {
    return Fail(Code::kInvalidArgument, "Allreduce '{}': {} is no reduction; give Average, Sum, Min, Max or Product",
                name, static_cast<int>(signature.reduce_op));
  }
  if (signature.reduce_op == ReduceOp::kAdasum)
    return Fail(Code::kUnimplemented, "Allreduce '{}': Adasum is not available yet", name);
  if (!kernel::Supports(signature.reduce_op, signature.dtype)) {
    return Fail(Code::kInvalidArgument, "Allreduce '{}': {} is not defined for {}; bool knows Min (and) and Max (or)",
                name, NameOf(signature.reduce_op), NameOf(signature.dtype));
  }
  if (signature.dtype == DType::kBool && (signature.prescale != 1.0 || signature.postscale != 1.0)) {
    return Fail(Code::kInvalidArgument,
                "Allreduce '{}': bool cannot be scaled; leave prescale_factor and postscale_factor at 1", name);
  }
  return {};
}

}  // namespace

Status Engine::ValidateRequest(int process_set, const controller::Request& request) const {
  const wire::Signature& signature = request.signature;
  const std::string_view title = Title(signature.op);
  if (process_set < 0 || process_set >= static_cast<int>(sets_.size())) {
    return Fail(Code::kInvalidArgument, "{}: Process set provided does not exist: {} (there are 0 to {})", title,
                process_set, sets_.size() - 1);
  }
  const ProcessSet& set = *sets_[process_set];
  if (!set.included()) {
    return Fail(Code::kInvalidArgument, "{}: Rank {} is not a member of the provided process set {} (ranks {})", title,
                world_.layout.rank, process_set, fmt::join(set.ranks(), ", "));
  }
  HVD_RETURN_IF_ERROR(wire::Check(request));
  if (signature.op == OpKind::kAllreduce) HVD_RETURN_IF_ERROR(CheckReduction(signature, request.name));
  if (signature.op == OpKind::kBroadcast && set.MemberOf(signature.root) < 0) {
    return Fail(Code::kInvalidArgument, "Broadcast '{}': invalid root rank {}: process set {} has ranks {}",
                request.name, signature.root, process_set, fmt::join(set.ranks(), ", "));
  }
  const bool known = signature.op == OpKind::kAllreduce || signature.op == OpKind::kAllgather ||
                     signature.op == OpKind::kBroadcast || signature.op == OpKind::kBarrier;
  if (!known) return Fail(Code::kUnimplemented, "{} is not available yet", title);
  return {};
}

Result<uint64_t> Engine::Prepare(int process_set, controller::Request request) {
  HVD_RETURN_IF_ERROR(ValidateRequest(process_set, request));
  return registry_.Prepare(process_set, std::move(request));
}

Status Engine::Validate(const Submission& submission) const {
  HVD_RETURN_IF_ERROR(ValidateRequest(submission.process_set, submission.request));
  const wire::Signature& signature = submission.request.signature;
  const std::string& name = submission.request.name;
  const std::string_view title = Title(signature.op);
  if (signature.op == OpKind::kBarrier) return {};
  const auto bytes = static_cast<uint64_t>(ElementCount(signature.shape)) * SizeOf(signature.dtype);
  if (submission.input_bytes != bytes) {
    return Fail(Code::kInvalidArgument, "{} '{}': the input has {} bytes, but shape {} of {} needs {}", title, name,
                submission.input_bytes, ToString(signature.shape), NameOf(signature.dtype), bytes);
  }
  if (bytes > 0 && submission.input == nullptr)
    return Fail(Code::kInvalidArgument, "{} '{}': the input is NULL", title, name);
  const auto* in = static_cast<const std::byte*>(submission.input);
  const auto* out = static_cast<const std::byte*>(submission.output);
  const bool in_place = in == out && signature.op != OpKind::kAllgather;
  if (out != nullptr && !in_place && in < out + submission.output_bytes && out < in + submission.input_bytes) {
    return Fail(Code::kInvalidArgument,
                "{} '{}': input and output overlap: give the same buffer for both, or separate ones", title, name);
  }
  if (signature.op == OpKind::kAllgather) return {};
  if (submission.output_bytes != bytes || (bytes > 0 && submission.output == nullptr)) {
    return Fail(Code::kInvalidArgument, "{} '{}': the output has {} bytes, but {} are needed", title, name,
                submission.output_bytes, bytes);
  }
  return {};
}

}  // namespace hvd::engine
