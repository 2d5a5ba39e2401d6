// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace hvd {
namespace {

struct DTypeRow {
  size_t size;
  std::string_view name;
};

constexpr std::array<DTypeRow, kDTypeCount> kDTypes{{{1, "uint8"},
                                                     {1, "int8"},
                                                     {2, "uint16"},
                                                     {2, "int16"},
                                                     {4, "int32"},
                                                     {8, "int64"},
                                                     {2, "float16"},
                                                     {4, "float32"},
                                                     {8, "float64"},
                                                     {1, "bool"},
                                                     {2, "bfloat16"}}};

constexpr std::array<std::string_view, 9> kOps{"ALLREDUCE", "ALLGATHER",       "BROADCAST",
                                               "BARRIER",   "ALLTOALL",        "REDUCESCATTER",
                                               "JOIN",      "ADD_PROCESS_SET", "REMOVE_PROCESS_SET"};
constexpr std::array<std::string_view, 6> kReduceOps{"average", "sum", "adasum", "min", "max", "product"};

}  // namespace

bool IsValid(DType type) { return static_cast<uint32_t>(type) < kDTypes.size(); }
bool IsValid(ReduceOp op) { return static_cast<uint32_t>(op) < kReduceOps.size(); }
size_t SizeOf(DType type) { return IsValid(type) ? kDTypes[static_cast<size_t>(type)].size : 0; }
std::string_view NameOf(DType type) { return IsValid(type) ? kDTypes[static_cast<size_t>(type)].name : "unknown"; }

std::string_view NameOf(OpKind op) {
  const auto i = static_cast<uint32_t>(op);
  return i < kOps.size() ? kOps[i] : "UNKNOWN";
}

std::string_view NameOf(ReduceOp op) {
  const auto i = static_cast<uint32_t>(op);
  return i < kReduceOps.size() ? kReduceOps[i] : "unknown";
}

int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

std::string ToString(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace hvd
