// SPDX-License-Identifier: Apache-2.0
#pragma once
// The words that every layer shares: rank, element type, reduction, operation, shape. Numbers equal those of hvd.h.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

using Rank = int;

enum class DType : int32_t {
  kUInt8 = 0,
  kInt8 = 1,
  kUInt16 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBool = 9,
  kBFloat16 = 10,
};
inline constexpr int kDTypeCount = 11;

enum class ReduceOp : int32_t { kAverage = 0, kSum = 1, kAdasum = 2, kMin = 3, kMax = 4, kProduct = 5 };

enum class OpKind : int32_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kBarrier = 3,
  kAlltoall = 4,
  kReducescatter = 5,
  kJoin = 6,
  // Not for users: changes of the process sets, which travel as operations of the global set.
  kAddProcessSet = 7,
  kRemoveProcessSet = 8,
};

// Whether a value is an operation; values come from peers and callers.
constexpr bool IsValid(OpKind op) { return op >= OpKind::kAllreduce && op <= OpKind::kRemoveProcessSet; }
// Whether an operation adds or removes a process set.
constexpr bool ChangesProcessSets(OpKind op) { return op == OpKind::kAddProcessSet || op == OpKind::kRemoveProcessSet; }
// Whether all members take part in an operation at the same time: neither a join nor a change of the process sets.
constexpr bool IsCollective(OpKind op) { return op != OpKind::kJoin && !ChangesProcessSets(op); }
// Whether an operation has a tensor: every collective but the barrier.
constexpr bool HasTensor(OpKind op) { return IsCollective(op) && op != OpKind::kBarrier; }
// Whether an operation combines the elements of the members by a ReduceOp.
constexpr bool Reduces(OpKind op) { return op == OpKind::kAllreduce || op == OpKind::kReducescatter; }

using Shape = std::vector<int64_t>;

// 0 for a value that is no DType.
size_t SizeOf(DType type);
bool IsValid(DType type);
bool IsValid(ReduceOp op);
// "float32"; "unknown" for a value that is no DType.
std::string_view NameOf(DType type);
// "ALLREDUCE": as error messages and the timeline spell it.
std::string_view NameOf(OpKind op);
std::string_view NameOf(ReduceOp op);
// Product of the dimensions; 1 for a scalar.
int64_t ElementCount(const Shape& shape);
// "[2, 3]".
std::string ToString(const Shape& shape);

}  // namespace hvd
