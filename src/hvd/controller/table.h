// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sequencer's memory of names: who asked for what, and which plan, if any, is cached for it.
//
// mark   a member's wish for one execution of the name: none, a request (kept in full), or a ready mark for the cached
// plan.
//        A request that fits the cached plan is kept in full as well: should the plan be forgotten before it executes,
//        the member will not ask again, because it never said ready.
//
// Thread safety: none.
// Lifetime: a Row stays where it is until Release finds it empty.

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "hvd/controller/plan.h"

namespace hvd::controller {

class Table;

class Row {
 public:
  Row(std::string name, size_t members) : name_(std::move(name)), marks_(members, Mark::kNone) {}

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
  friend class Table;
  enum class Mark : uint8_t { kNone, kRequest, kReady };

  void Set(int member, Mark mark, uint64_t now);

  const std::string name_;
  PlanPtr plan_;  // cached
  std::list<Row*>::iterator age_;
  std::vector<Mark> marks_;
  std::map<int, Signature> requests_;
  std::map<int, int64_t> first_dims_;  // of ready marks, where not 0
  size_t asked_ = 0;
  uint64_t since_ = 0;
};

class Table {
 public:
  Table(size_t members, int64_t capacity) : members_(members), capacity_(capacity) {}

  // Never null.
  Row* ForName(const std::string& name);
  // The row whose cached plan this is, or null.
  Row* ForUid(uint64_t uid);

  // Whether the plan of one more name may be cached. If the cache is full, the least recently used plan that nobody has
  // asked for is taken out first, and its uid put into *evicted (else 0).
  bool MakeRoom(uint64_t* evicted);
  void Cache(Row* row, PlanPtr plan);
  void Uncache(Row* row);
  void Touch(Row* row);
  // To be called when a row may have become empty; frees it.
  void Release(Row* row);

  // Rows that some member asked for, in the order in which they came up.
  std::vector<Row*> Asked();

 private:
  const size_t members_;
  const int64_t capacity_;
  std::unordered_map<std::string, Row> rows_;
  std::unordered_map<uint64_t, Row*> by_uid_;
  std::list<Row*> ages_;  // rows with a cached plan, least recently used first
};

}  // namespace hvd::controller
