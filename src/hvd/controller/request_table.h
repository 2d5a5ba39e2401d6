// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sequencer's memory of names: who asked for what, and which plan, if any, is cached for it.
//
// mark   A member's wish for one execution of the name: none, a request (kept in full), or a ready mark for the cached
//        plan. A request that fits the cached plan is kept in full as well: should the plan be forgotten before it
//        executes, the member will not ask again, because it never said ready.
//
// Thread safety: none.
// Lifetime: a RequestRow stays where it is until Release finds it empty.

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "hvd/controller/plan.h"

namespace hvd::controller {

class RequestTable;

class RequestRow {
 public:
  RequestRow(std::string name, size_t members) : name_(std::move(name)), marks_(members, Mark::kNone) {}

  const std::string& name() const { return name_; }
  const PlanPtr& plan() const { return plan_; }
  size_t asked() const { return asked_; }
  bool asked(int member) const { return marks_[member] != Mark::kNone; }
  // Of the first mark since the row was last empty; rows by this number are in the order in which names came up.
  uint64_t since() const { return since_; }
  std::vector<int> Missing() const;
  // Of the plan or of any request.
  OpKind op() const { return signature() == nullptr ? OpKind::kAllreduce : signature()->op; }
  // Also of the plan or of any request; nullptr: nobody asked and there is no plan.
  const Signature* signature() const;

  // A second mark of one member replaces its first.
  void MarkRequest(int member, Signature signature, uint64_t now);
  void MarkReady(int member, int64_t first_dim, uint64_t now);
  // Whose they were.
  std::vector<int> DropReadyMarks();
  void Clear();

  // One per member that asked, in the order of members. Without a cached plan every mark is a request.
  std::vector<Signature> TakeSignatures();
  // As Execution::first_dims; 0 for members that have not asked.
  std::vector<int64_t> FirstDims() const;

 private:
  friend class RequestTable;
  enum class Mark : uint8_t { kNone, kRequest, kReady };

  void Set(int member, Mark mark, uint64_t now);

  const std::string name_;
  PlanPtr plan_;  // cached
  std::list<RequestRow*>::iterator age_;
  std::vector<Mark> marks_;
  std::map<int, Signature> requests_;
  std::map<int, int64_t> first_dims_;  // of ready marks, where not 0
  size_t asked_ = 0;
  uint64_t since_ = 0;
};

class RequestTable {
 public:
  RequestTable(size_t members, int64_t capacity) : members_(members), capacity_(capacity), most_(capacity * kGrowth) {}

  // Never null.
  RequestRow* ForName(const std::string& name);
  // The row whose cached plan this is, or null.
  RequestRow* ForUid(uint64_t uid);

  // Whether the plan of one more name may be cached. If the cache is full, the least recently used plan that nobody has
  // asked for is taken out first, and its uid put into *evicted (else 0).
  // If the plan of this name was taken out before, the program uses more names again and again than there is room for:
  // then the capacity doubles instead, up to kGrowth times the first one.
  bool MakeRoom(const std::string& name, uint64_t* evicted);
  static constexpr int64_t kGrowth = 16;
  // Whether it has grown as far as it may.
  int64_t capacity() const { return capacity_; }
  bool full_grown() const { return capacity_ >= most_; }
  void Cache(RequestRow* row, PlanPtr plan);
  void Uncache(RequestRow* row);
  void Touch(RequestRow* row);
  // To be called when a row may have become empty; frees it.
  void Release(RequestRow* row);

  // Rows that some member asked for, in the order in which they came up.
  std::vector<RequestRow*> Asked();

 private:
  const size_t members_;
  int64_t capacity_;
  const int64_t most_;
  std::unordered_set<size_t> evicted_;  // hashes of names
  std::unordered_map<std::string, RequestRow> rows_;
  std::unordered_map<uint64_t, RequestRow*> by_uid_;
  std::list<RequestRow*> ages_;  // rows with a cached plan, least recently used first
};

}  // namespace hvd::controller
