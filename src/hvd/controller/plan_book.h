// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a member knows of the plans of one process set: a function of the log entries that it applied, and therefore the
// same on all members at the same position.
//
// A member that has a name to submit asks Match(): a plan means "send ready with its uid", none means "send the
// request". On kForget it sends requests for what it had said ready for with that uid and what is not executed yet.
//
// Thread safety: none; call with the progress token.
// Lifetime: plans are shared; one that is found stays valid as long as it is held, also when the log forgets it.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hvd/controller/plan.h"

namespace hvd::controller {

class PlanBook {
 public:
  // kDefine and kForget change the book; other entries do not.
  void Apply(const LogEntry& entry);

  // The cached plan of that name; null if there is none. The reference is good until the book changes.
  const PlanPtr& FindByName(std::string_view name) const;
  // Any plan that is defined and neither forgotten nor dropped.
  PlanPtr FindByUid(uint64_t uid) const;
  // The cached plan that a request may be replaced by.
  PlanPtr Match(const Request& request) const;
  // Ends a plan that is not cached, after its one execution. A cached plan is left alone: only the log forgets it.
  void Drop(uint64_t uid);

  size_t size() const { return by_uid_.size(); }
  // Grows whenever a plan comes or goes: what was found is found again while it stays.
  uint64_t changes() const { return changes_; }
  // All plans by ascending uid; for comparison and reports.
  std::vector<PlanPtr> All() const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  uint64_t changes_ = 0;
  std::unordered_map<uint64_t, PlanPtr> by_uid_;
  std::unordered_map<std::string, PlanPtr, Hash, std::equal_to<>> cached_;
};

}  // namespace hvd::controller
