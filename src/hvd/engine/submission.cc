// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/submission.h"

#include <fmt/ranges.h>

#include "hvd/kernel/adasum.h"
#include "hvd/kernel/kernel.h"
#include "hvd/transport/shm/arena.h"
#include "hvd/wire/control.h"

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
    case OpKind::kAddProcessSet:
    case OpKind::kRemoveProcessSet:
      return "Process set";
  }
  return "Operation";
}

Status CheckReduction(const wire::Signature& signature, const std::string& name) {
  const std::string_view title = Title(signature.op);
  if (!IsValid(signature.reduce_op)) {
    return Fail(Code::kInvalidArgument, "{} '{}': {} is no reduction; give Average, Sum, Min, Max or Product", title,
                name, static_cast<int>(signature.reduce_op));
  }
  const bool sums = signature.reduce_op == ReduceOp::kSum || signature.reduce_op == ReduceOp::kAverage;
  if (signature.op == OpKind::kReducescatter && !sums) {
    return Fail(Code::kAborted, "Reducescatter '{}': {} is not supported; give Average or Sum", name,
                NameOf(signature.reduce_op));
  }
  if (signature.reduce_op == ReduceOp::kAdasum) {
    if (kernel::SupportsAdasum(signature.dtype)) return {};
    return Fail(Code::kInvalidArgument, "Allreduce '{}': Adasum is not defined for {}; give a floating-point type",
                name, NameOf(signature.dtype));
  }
  if (!kernel::Supports(signature.reduce_op, signature.dtype)) {
    return Fail(Code::kInvalidArgument, "{} '{}': {} is not defined for {}; bool knows Min (and) and Max (or)", title,
                name, NameOf(signature.reduce_op), NameOf(signature.dtype));
  }
  if (signature.dtype == DType::kBool && (signature.prescale != 1.0 || signature.postscale != 1.0)) {
    return Fail(Code::kInvalidArgument,
                "{} '{}': bool cannot be scaled; leave prescale_factor and postscale_factor at 1", title, name);
  }
  return {};
}

// Call after ApplyDefaults: an alltoall has its splits.
Status CheckSplits(const wire::Signature& signature, const std::string& name, int members) {
  if (members > static_cast<int>(wire::kMaxExchangeMembers)) {
    return Fail(Code::kUnimplemented, "Alltoall '{}': {} ranks, at most {} are supported", name, members,
                wire::kMaxExchangeMembers);
  }
  if (signature.shape.empty()) return {};  // every rank hears of that
  const int64_t rows = signature.shape[0];
  if (signature.numbers.empty()) {
    return Fail(Code::kInvalidArgument,
                "Alltoall '{}': the first dimension, {}, is not divisible by {} ranks: give splits", name, rows,
                members);
  }
  if (static_cast<int>(signature.numbers.size()) != members) {
    return Fail(Code::kInvalidArgument, "Alltoall '{}': {} splits for {} ranks: give one per rank of the process set",
                name, signature.numbers.size(), members);
  }
  int64_t sum = 0;
  for (const int64_t split : signature.numbers) sum += split;
  if (sum <= rows) return {};
  return Fail(Code::kInvalidArgument, "Alltoall '{}': the sum of splits, {}, is larger than the first dimension, {}",
              name, sum, rows);
}

// `found`: the set with that id; nullptr: there is none.
Status CheckRequest(const SetTable& sets, Rank rank, const ProcessSet* found, int process_set,
                    const controller::Request& request) {
  const wire::Signature& signature = request.signature;
  const std::string_view title = Title(signature.op);
  if (found == nullptr) {
    std::vector<int> ids;
    for (const auto& [id, ranks] : sets.Describe()) ids.push_back(id);
    return Fail(Code::kInvalidArgument, "{}: Process set provided does not exist: {} (there are {})", title,
                process_set, fmt::join(ids, ", "));
  }
  const ProcessSet& set = *found;
  if (!set.included()) {
    return Fail(Code::kInvalidArgument, "{}: Rank {} is not a member of the provided process set {} (ranks {})", title,
                rank, process_set, fmt::join(set.ranks(), ", "));
  }
  HVD_RETURN_IF_ERROR(wire::Check(request));
  if (signature.op == OpKind::kAllreduce || signature.op == OpKind::kReducescatter) {
    HVD_RETURN_IF_ERROR(CheckReduction(signature, request.name));
  }
  if (signature.op == OpKind::kBroadcast && set.MemberOf(signature.root) < 0) {
    return Fail(Code::kInvalidArgument, "Broadcast '{}': invalid root rank {}: process set {} has ranks {}",
                request.name, signature.root, process_set, fmt::join(set.ranks(), ", "));
  }
  if (signature.op == OpKind::kJoin && process_set != 0) {
    return Fail(Code::kInvalidArgument, "Join: only the global process set can be joined, not {}", process_set);
  }
  return {};
}

}  // namespace

void ApplyDefaults(const ProcessSet* set, Submission* submission) {
  if (set == nullptr) return;
  wire::Signature& signature = submission->request.signature;
  // Ranks that differ in Average and Sum differ in their factors.
  if (signature.op == OpKind::kReducescatter && signature.reduce_op == ReduceOp::kAverage) {
    signature.reduce_op = ReduceOp::kSum;
    signature.postscale /= set->size();
  }
  const bool even = !signature.shape.empty() && signature.shape[0] % set->size() == 0;
  if (signature.op == OpKind::kAlltoall && signature.numbers.empty() && even) {
    signature.numbers.assign(set->size(), signature.shape[0] / set->size());
  }
  if (signature.op == OpKind::kJoin) submission->request.name = controller::kJoinName;
}

Status ValidateRequest(const SetTable& sets, Rank rank, int process_set, const controller::Request& request) {
  return CheckRequest(sets, rank, sets.Find(process_set), process_set, request);
}

Status Validate(const SetTable& sets, Rank rank, const ProcessSet* set, const Submission& submission) {
  HVD_RETURN_IF_ERROR(CheckRequest(sets, rank, set, submission.process_set, submission.request));
  const wire::Signature& signature = submission.request.signature;
  const std::string& name = submission.request.name;
  const std::string_view title = Title(signature.op);
  if (!HasTensor(signature.op)) return {};
  if (signature.op == OpKind::kAlltoall) {
    HVD_RETURN_IF_ERROR(CheckSplits(signature, name, set->size()));
  }
  const auto bytes = static_cast<uint64_t>(ElementCount(signature.shape)) * SizeOf(signature.dtype);
  if (submission.input_bytes != bytes) {
    return Fail(Code::kInvalidArgument, "{} '{}': the input has {} bytes, but shape {} of {} needs {}", title, name,
                submission.input_bytes, ToString(signature.shape), NameOf(signature.dtype), bytes);
  }
  if (bytes > 0 && submission.input == nullptr)
    return Fail(Code::kInvalidArgument, "{} '{}': the input is NULL", title, name);
  const auto& arena = transport::shm::Arena::Process();
  if (arena.inherited() && (arena.Contains(submission.input, 1) >= 0 || arena.Contains(submission.output, 1) >= 0)) {
    return Fail(Code::kInvalidArgument,
                "{} '{}': the array was made by hvd.empty or hvd_alloc before this process was forked, and parent and "
                "children all write to it: give one that was made after the fork",
                title, name);
  }
  const auto* in = static_cast<const std::byte*>(submission.input);
  const auto* out = static_cast<const std::byte*>(submission.output);
  const bool sizes_result = SizesResult(signature.op);
  const bool in_place = in == out && !sizes_result;
  if (out != nullptr && !in_place && in < out + submission.output_bytes && out < in + submission.input_bytes) {
    return Fail(Code::kInvalidArgument, "{} '{}': input and output overlap: give {}", title, name,
                sizes_result ? "separate buffers" : "the same buffer for both, or separate ones");
  }
  if (sizes_result) return {};
  if (bytes > 0 && submission.output == nullptr)
    return Fail(Code::kInvalidArgument, "{} '{}': the output is NULL", title, name);
  if (submission.output_bytes != bytes) {
    return Fail(Code::kInvalidArgument, "{} '{}': the output has {} bytes, but {} are needed", title, name,
                submission.output_bytes, bytes);
  }
  return {};
}

}  // namespace hvd::engine
