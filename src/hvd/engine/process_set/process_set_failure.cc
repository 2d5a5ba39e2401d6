// SPDX-License-Identifier: Apache-2.0
// Time-outs, reports and the end of a process set.
#include <algorithm>
#include <cctype>
#include <utility>

#include "hvd/base/tensor_labels.h"
#include "hvd/engine/process_set/process_set.h"

namespace hvd::engine {

using collective::Piece;
using Stage = OperationStages::Stage;
using State = Operation::State;

bool ProcessSet::Detach(Operation* op) {
  const bool held = std::find(stages_.held.begin(), stages_.held.end(), op) != stages_.held.end();
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
  if (op.state == State::kAnnounced && epoch_.undecided()) {
    std::vector<int> members;
    announcer_->CollectMissing(epoch_.number, epoch_.head, &members);
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
  if (epoch_.undecided()) announcer_->CollectMissing(epoch_.number, epoch_.head, &members);
  if (!stages_.waiting.empty()) announcer_->CollectHolders(&members);
  for (const Running& running : stages_.running) running.machine->CollectAwaited(&members);
  for (int member : members) {
    if (member != options_.me) ranks->insert(options_.ranks[member]);
  }
  if (stages_.sent.empty()) return;
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
    lost.insert(lost.end(), stages_.waiting.begin(), stages_.waiting.end());
    lost.insert(lost.end(), stages_.held.begin(), stages_.held.end());
    if (std::exchange(join_.waits, false)) lost.push_back(join_.op);
    stages_.waiting.clear();
    stages_.held.clear();
    epoch_.announcing = false;
  }
  const auto agreed = stages_.announced.begin() + static_cast<ptrdiff_t>(AgreedByLeaver(member));
  lost.insert(lost.end(), agreed, stages_.announced.end());
  stages_.announced.erase(agreed, stages_.announced.end());
  epoch_.next = epoch_.head + stages_.announced.size();
  if (sequencer_ != nullptr) {
    AppendLog(LostEntries());
  } else if (member == 0) {
    for (const auto& [name, op] : stages_.sent) lost.push_back(op);
    stages_.sent.clear();
  }
  for (Operation* op : lost) {
    if (op != nullptr) Finish(op, error);
  }
}

void ProcessSet::FailAll(const Error& error) {
  if (left_.code == Code::kOk) left_ = error;
  std::vector<Operation*> all = stages_.TakeAll();
  if (std::exchange(join_.waits, false) || std::exchange(join_.agreed, false)) all.push_back(join_.op);
  kept_.clear();
  epoch_.next = epoch_.head;
  epoch_.announcing = false;
  for (Operation* op : all) Finish(op, error);
}

std::string ProcessSet::DescribeInFlight() const {
  // The operation that is nearest to its end.
  const Operation* op = nullptr;
  Stage furthest = Stage::kHeld;
  stages_.ForEach([&](Stage stage, size_t index, const Operation* candidate) {
    if (index > 0 || (op != nullptr && stage <= furthest)) return;
    op = candidate;
    furthest = stage;
  });
  if (op == nullptr) op = join_.op;
  if (op == nullptr) return {};
  std::string kind(NameOf(op->request.signature.op));
  for (char& c : kind) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return fmt::format("{} '{}'{}", kind, op->request.name, TensorLabelInBrackets(op->request.name));
}

}  // namespace hvd::engine
