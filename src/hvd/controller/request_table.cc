// SPDX-License-Identifier: Apache-2.0
#include "hvd/controller/request_table.h"

#include <algorithm>
#include <utility>

namespace hvd::controller {

std::vector<int> RequestRow::Missing() const {
  std::vector<int> missing;
  for (size_t i = 0; i < marks_.size(); ++i) {
    if (marks_[i] == Mark::kNone) missing.push_back(static_cast<int>(i));
  }
  return missing;
}

const Signature* RequestRow::signature() const {
  if (!requests_.empty()) return &requests_.begin()->second;
  return plan_ ? &plan_->signature : nullptr;
}

void RequestRow::Set(int member, Mark mark, uint64_t now) {
  if (asked_ == 0) since_ = now;
  if (marks_[member] == Mark::kNone) ++asked_;
  marks_[member] = mark;
}

void RequestRow::MarkRequest(int member, Signature signature, uint64_t now) {
  Set(member, Mark::kRequest, now);
  first_dims_.erase(member);
  requests_.insert_or_assign(member, std::move(signature));
}

void RequestRow::MarkReady(int member, int64_t first_dim, uint64_t now) {
  Set(member, Mark::kReady, now);
  requests_.erase(member);
  first_dims_.erase(member);
  if (first_dim != 0) first_dims_[member] = first_dim;
}

std::vector<int> RequestRow::DropReadyMarks() {
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

void RequestRow::Clear() {
  std::fill(marks_.begin(), marks_.end(), Mark::kNone);
  requests_.clear();
  first_dims_.clear();
  asked_ = 0;
}

std::vector<Signature> RequestRow::TakeSignatures() {
  std::vector<Signature> signatures;
  signatures.reserve(requests_.size());
  for (auto& [member, signature] : requests_) signatures.push_back(std::move(signature));
  requests_.clear();
  return signatures;
}

std::vector<int64_t> RequestRow::FirstDims() const {
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

RequestRow* RequestTable::ForName(const std::string& name) {
  const auto at = rows_.find(name);
  if (at != rows_.end()) return &at->second;
  return &rows_.try_emplace(name, name, members_).first->second;
}

RequestRow* RequestTable::ForUid(uint64_t uid) {
  const auto at = by_uid_.find(uid);
  return at == by_uid_.end() ? nullptr : at->second;
}

bool RequestTable::MakeRoom(const std::string& name, uint64_t* evicted) {
  *evicted = 0;
  if (capacity_ <= 0) return false;
  const std::hash<std::string> hash;
  if (!evicted_.empty() && evicted_.erase(hash(name)) > 0 && !full_grown()) capacity_ *= 2;
  if (static_cast<int64_t>(ages_.size()) < capacity_) return true;
  // A plan that somebody is ready for must stay: forgetting it would cost every member that asked a second message.
  const auto oldest = std::find_if(ages_.begin(), ages_.end(), [](const RequestRow* row) { return row->asked() == 0; });
  if (oldest == ages_.end()) return false;
  RequestRow* row = *oldest;
  *evicted = row->plan()->uid;
  // Names that number their operations never come again; of those no more are remembered than could be cached.
  if (static_cast<int64_t>(evicted_.size()) >= most_) evicted_.clear();
  evicted_.insert(hash(row->name()));
  Uncache(row);
  Release(row);
  return true;
}

void RequestTable::Cache(RequestRow* row, PlanPtr plan) {
  by_uid_[plan->uid] = row;
  row->plan_ = std::move(plan);
  row->age_ = ages_.insert(ages_.end(), row);
}

void RequestTable::Uncache(RequestRow* row) {
  by_uid_.erase(row->plan_->uid);
  ages_.erase(row->age_);
  row->plan_ = nullptr;
}

void RequestTable::Touch(RequestRow* row) { ages_.splice(ages_.end(), ages_, row->age_); }

void RequestTable::Release(RequestRow* row) {
  if (row->asked() > 0 || row->plan()) return;
  const auto at = rows_.find(row->name());
  rows_.erase(at);
}

std::vector<RequestRow*> RequestTable::Asked() {
  std::vector<RequestRow*> asked;
  for (auto& [name, row] : rows_) {
    if (row.asked() > 0) asked.push_back(&row);
  }
  std::sort(asked.begin(), asked.end(),
            [](const RequestRow* a, const RequestRow* b) { return a->since() < b->since(); });
  return asked;
}

}  // namespace hvd::controller
