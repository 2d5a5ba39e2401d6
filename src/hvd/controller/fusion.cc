// SPDX-License-Identifier: Apache-2.0
#include "hvd/controller/fusion.h"

#include <bit>
#include <map>
#include <tuple>

namespace hvd::controller {
namespace {

using Kind = std::tuple<DType, ReduceOp, Device, uint64_t, uint64_t>;

Kind KindOf(const Signature& s) {
  return {s.dtype, s.reduce_op, s.device, std::bit_cast<uint64_t>(s.prescale), std::bit_cast<uint64_t>(s.postscale)};
}

struct OpenGroup {
  size_t index;
  int64_t bytes;
};

// Adasum's factors belong to one tensor each: adding it up with others would change the result.
bool Fusible(const Signature& s) { return s.op == OpKind::kAllreduce && s.reduce_op != ReduceOp::kAdasum; }

}  // namespace

bool IsFused(const Signature& signature, int64_t threshold) {
  return Fusible(signature) && threshold > 0 && InputBytes(signature) <= threshold;
}

std::vector<std::vector<size_t>> Fuse(std::span<const PlanPtr> plans, int64_t threshold) {
  std::vector<std::vector<size_t>> groups;
  std::map<Kind, OpenGroup> open;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (!plans[i] || !IsFused(plans[i]->signature, threshold)) {
      groups.push_back({i});
      continue;
    }
    const int64_t bytes = InputBytes(plans[i]->signature);
    const auto [at, is_new] = open.try_emplace(KindOf(plans[i]->signature), OpenGroup{groups.size(), 0});
    OpenGroup& group = at->second;
    const bool full =
        !is_new && (group.bytes > threshold - bytes || groups[group.index].size() >= wire::kMaxExecutions);
    if (full) group = {groups.size(), 0};
    if (is_new || full) groups.emplace_back();
    groups[group.index].push_back(i);
    group.bytes += bytes;
  }
  return groups;
}

}  // namespace hvd::controller
