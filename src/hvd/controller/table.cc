// SPDX-License-Identifier: Apache-2.0
#include "hvd/controller/table.h"

#include <algorithm>
#include <utility>

namespace hvd::controller {

std::vector<int> Row::Missing() const {
  std::vector<int> missing;
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (marks_[i] == Mark::kNone) missing.push_back(static_cast<int>(i));
  }
  return missing;
}

const Signature* Row::signature() const {
  if (!requests_.empty()) return &requests_.begin()->second;
  return plan_ ? &plan_->signature : nullptr;
}

void Row::Set(int member, Mark mark, uint64_t now) {
  if (asked_ == 0) since_ = now;
  if (marks_[member] == Mark::kNone) ++asked_;
  marks_[member] = mark;
}

void Row::MarkRequest(int member, Signature signature, uint64_t now) {
  Set(member, Mark::kRequest, now);
  first_dims_.erase(member);
  requests_.insert_or_assign(member, std::move(signature));
}

void Row::MarkReady(int member, int64_t first_dim, uint64_t now) {
  Set(member, Mark::kReady, now);
  requests_.erase(member);
  first_dims_.erase(member);
  if (first_dim != 0) first_dims_[member] = first_dim;
}

std::vector<int> Row::DropReadyMarks() {
  std::vector<int> dropped;
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (marks_[i] != Mark::kReady) continue;
    marks_[i] = Mark::kNone;
    dropped.push_back(static_cast<int>(i));
  }
  asked_ -= dropped.size();
  first_dims_.clear();
  return dropped;
}

void Row::Clear() {
  std::fill(marks_.begin(), marks_.end(), Mark::kNone);
  requests_.clear();
  first_dims_.clear();
  asked_ = 0;
}

std::vector<Signature> Row::TakeSignatures() {
  std::vector<Signature> signatures;
  signatures.reserve(requests_.size());
  for (auto& [member, signature] : requests_) signatures.push_back(std::move(signature));
  requests_.clear();
  return signatures;
}

std::vector<int64_t> Row::FirstDims() const {
  const size_t members = marks_.size();
  if (op() == OpKind::kAlltoall) {
    std::vector<int64_t> dims(members, 0);
    for (const auto& [member, dim] : first_dims_) dims[member] = dim;
    std::vector<int64_t> rows = EvenRows(dims);
    for (const auto& [member, signature] : requests_) {
      std::copy_n(signature.numbers.begin(), std::min(members, signature.numbers.size()),
                  rows.begin() + static_cast<ptrdiff_t>(member * members));
    }
    return rows;
  }
  std::vector<int64_t> dims(members, 0);
  for (const auto& [member, dim] : first_dims_) dims[member] = dim;
  for (const auto& [member, signature] : requests_) dims[member] = FirstDim(signature);
  return dims;
}

Row* Table::ForName(const std::string& name) {
  const auto at = rows_.find(name);
  if (at != rows_.end()) return &at->second;
  return &rows_.try_emplace(name, name, members_).first->second;
}

Row* Table::ForUid(uint64_t uid) {
  const auto at = by_uid_.find(uid);
  return at == by_uid_.end() ? nullptr : at->second;
}

bool Table::MakeRoom(uint64_t* evicted) {
  *evicted = 0;
  if (capacity_ <= 0) return false;
  if (static_cast<int64_t>(ages_.size()) < capacity_) return true;
  // A plan that somebody is ready for must stay: forgetting it would cost every member that asked a second message.
  const auto oldest = std::find_if(ages_.begin(), ages_.end(), [](const Row* row) { return row->asked() == 0; });
  if (oldest == ages_.end()) return false;
  Row* row = *oldest;
  *evicted = row->plan()->uid;
  Uncache(row);
  Release(row);
  return true;
}

void Table::Cache(Row* row, PlanPtr plan) {
  by_uid_[plan->uid] = row;
  row->plan_ = std::move(plan);
  row->age_ = ages_.insert(ages_.end(), row);
}

void Table::Uncache(Row* row) {
  by_uid_.erase(row->plan_->uid);
  ages_.erase(row->age_);
  row->plan_ = nullptr;
}

void Table::Touch(Row* row) { ages_.splice(ages_.end(), ages_, row->age_); }

void Table::Release(Row* row) {
  if (row->asked() > 0 || row->plan()) return;
  const auto at = rows_.find(row->name());
  rows_.erase(at);
}

std::vector<Row*> Table::Asked() {
  std::vector<Row*> asked;
  for (auto& [name, row] : rows_) {
    if (row.asked() > 0) asked.push_back(&row);
  }
  std::sort(asked.begin(), asked.end(), [](const Row* a, const Row* b) { return a->since() < b->since(); });
  return asked;
}

}  // namespace hvd::controller
