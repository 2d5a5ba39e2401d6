// SPDX-License-Identifier: Apache-2.0
// Time-outs, reports and the end of a process set.
#include <algorithm>
#include <cctype>
#include <utility>

#include "hvd/engine/process_set.h"

namespace hvd::engine {

using collective::Piece;
using State = Operation::State;

bool ProcessSet::Detach(Operation* op) {
  const bool held = std::find(held_.begin(), held_.end(), op) != held_.end();
  if (op->state != State::kAnnounced && op->state != State::kSent && !held) return false;
  op->detached.store(true, std::memory_order_relaxed);
  op->snapshot.assign(op->input, op->input + op->input_bytes);
  if (!op->work.payload.pieces().empty()) {
    Piece piece = op->work.payload.pieces()[0];
    piece.in = op->snapshot.data();
    piece.out = nullptr;
    op->work.payload.Clear();
    op->work.payload.Add(piece);
  }
  return true;
}

std::vector<Rank> ProcessSet::MissingFor(const Operation& op) const {
  std::vector<Rank> ranks;
  if (op.state == State::kAnnounced && head_ != next_) {
    std::vector<int> members;
    announcer_->CollectMissing(epoch_, head_, &members);
    for (int member : members) ranks.push_back(options_.ranks[member]);
  }
  if (sequencer_ != nullptr && op.state == State::kSent) {
    for (const auto& waiting : sequencer_->Pending()) {
      if (waiting.name != op.request.name) continue;
      for (int member : waiting.missing) ranks.push_back(options_.ranks[member]);
    }
  }
  return ranks;
}

void ProcessSet::CollectAwaited(std::set<Rank>* ranks) const {
  std::vector<int> members;
  if (head_ != next_) announcer_->CollectMissing(epoch_, head_, &members);
  if (!waiting_.empty()) announcer_->CollectHolders(&members);
  for (const Running& running : running_) running.machine->CollectAwaited(&members);
  for (int member : members) {
    if (member != options_.me) ranks->insert(options_.ranks[member]);
  }
  if (sent_.empty()) return;
  if (sequencer_ == nullptr) {
    ranks->insert(options_.ranks[0]);
    return;
  }
  for (const int member : sequencer_->Awaited()) {
    if (member != options_.me) ranks->insert(options_.ranks[member]);
  }
}

std::vector<controller::LogEntry> ProcessSet::LostEntries() const {
  std::vector<controller::LogEntry> entries;
  for (const auto& waiting : sequencer_->Pending()) {
    controller::LogEntry entry;
    entry.kind = controller::LogEntry::Kind::kError;
    entry.name = waiting.name;
    entry.error = left_;
    entries.push_back(std::move(entry));
  }
  return entries;
}

void ProcessSet::OnLeft(int member, const Error& error) {
  std::vector<Operation*> lost;
  if (left_.code == Code::kOk) {
    // What the member agreed to before it left still happens; look at that first.
    while (Step()) {
    }
    FlushLog();
    left_ = error;
    ApplyKept();
    lost.insert(lost.end(), waiting_.begin(), waiting_.end());
    lost.insert(lost.end(), held_.begin(), held_.end());
    if (std::exchange(join_waits_, false)) lost.push_back(joined_);
    waiting_.clear();
    held_.clear();
    announcing_ = false;
  }
  const auto agreed = announced_.begin() + static_cast<ptrdiff_t>(AgreedByLeaver(member));
  lost.insert(lost.end(), agreed, announced_.end());
  announced_.erase(agreed, announced_.end());
  next_ = head_ + announced_.size();
  if (sequencer_ != nullptr) {
    AppendLog(LostEntries());
  } else if (member == 0) {
    for (const auto& [name, op] : sent_) lost.push_back(op);
    sent_.clear();
  }
  for (Operation* op : lost) {
    if (op != nullptr) Finish(op, error);
  }
}

void ProcessSet::FailAll(const Error& error) {
  if (left_.code == Code::kOk) left_ = error;
  std::vector<Operation*> all;
  for (Operation* op : announced_) all.push_back(op);
  for (Operation* op : waiting_) all.push_back(op);
  for (Operation* op : held_) all.push_back(op);
  if (std::exchange(join_waits_, false) || std::exchange(join_agreed_, false)) all.push_back(joined_);
  for (const auto& [name, op] : sent_) all.push_back(op);
  for (auto& running : queued_) all.insert(all.end(), running.ops.begin(), running.ops.end());
  for (auto& running : allocating_) all.insert(all.end(), running.ops.begin(), running.ops.end());
  for (auto& running : running_) all.insert(all.end(), running.ops.begin(), running.ops.end());
  announced_.clear();
  waiting_.clear();
  held_.clear();
  sent_.clear();
  kept_.clear();
  queued_.clear();
  allocating_.clear();
  running_.clear();
  next_ = head_;
  announcing_ = false;
  for (Operation* op : all) {
    if (op != nullptr) Finish(op, error);
  }
}

std::string ProcessSet::DescribeInFlight() const {
  const Operation* op = nullptr;
  if (!running_.empty()) {
    op = running_[0].ops[0];
  } else if (!announced_.empty() && announced_.front() != nullptr) {
    op = announced_.front();
  } else if (!sent_.empty()) {
    op = sent_.begin()->second;
  }
  if (op == nullptr) return {};
  std::string kind(NameOf(op->request.signature.op));
  for (char& c : kind) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return fmt::format("{} '{}'", kind, op->request.name);
}

}  // namespace hvd::engine
