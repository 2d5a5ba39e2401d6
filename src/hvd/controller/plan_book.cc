// SPDX-License-Identifier: Apache-2.0
#include "hvd/controller/plan_book.h"

#include <algorithm>

namespace hvd::controller {

void PlanBook::Apply(const LogEntry& entry) {
  ++changes_;
  if (entry.kind == LogEntry::Kind::kDefine) {
    const auto plan = std::make_shared<const Plan>(entry.plan);
    by_uid_[plan->uid] = plan;
    if (plan->cached) cached_[plan->name] = plan;
  } else if (entry.kind == LogEntry::Kind::kForget) {
    const auto at = by_uid_.find(entry.uid);
    if (at == by_uid_.end()) return;
    // The name may have a newer plan already.
    const auto named = cached_.find(at->second->name);
    if (named != cached_.end() && named->second->uid == entry.uid) cached_.erase(named);
    by_uid_.erase(at);
  }
}

const PlanPtr& PlanBook::FindByName(std::string_view name) const {
  static const PlanPtr kNone;
  const auto at = cached_.find(name);
  return at == cached_.end() ? kNone : at->second;
}

PlanPtr PlanBook::FindByUid(uint64_t uid) const {
  const auto at = by_uid_.find(uid);
  return at == by_uid_.end() ? nullptr : at->second;
}

PlanPtr PlanBook::Match(const Request& request) const {
  PlanPtr plan = FindByName(request.name);
  return plan && Fits(*plan, request.signature) ? plan : nullptr;
}

void PlanBook::Drop(uint64_t uid) {
  const auto at = by_uid_.find(uid);
  if (at != by_uid_.end() && !at->second->cached) by_uid_.erase(at);
}

std::vector<PlanPtr> PlanBook::All() const {
  std::vector<PlanPtr> plans;
  plans.reserve(by_uid_.size());
  for (const auto& [uid, plan] : by_uid_) plans.push_back(plan);
  std::sort(plans.begin(), plans.end(), [](const PlanPtr& a, const PlanPtr& b) { return a->uid < b->uid; });
  return plans;
}

}  // namespace hvd::controller
