// SPDX-License-Identifier: Apache-2.0
// The announcing road; see process_set.h.
#include "hvd/engine/process_set.h"

namespace hvd::engine {

using Outcome = comm::Announcer::Outcome;
using State = Operation::State;

namespace {

const Error kSuccess{Code::kOk, {}, -1};

}  // namespace

bool ProcessSet::Announces(const controller::Signature& signature) {
  return controller::Repeats(signature) && signature.reduce_op != ReduceOp::kAdasum;
}

bool ProcessSet::PublishMarks() {
  static const comm::Work kNoWork;
  bool moved = false;
  while (!waiting_.empty()) {
    Operation* op = waiting_.front();
    const Outcome outcome = op == nullptr ? announcer_->Publish(epoch_, next_, 0, 0, kNoWork)
                                          : announcer_->Publish(epoch_, next_, op->uid,
                                                                controller::FirstDim(op->request.signature), op->work);
    if (outcome == Outcome::kBusy) break;
    if (outcome == Outcome::kExhausted) {
      GiveUp({Code::kResourceExhausted, "no shared memory left for staging large tensors"});
      break;
    }
    waiting_.pop_front();
    announced_.push_back(op);
    ++next_;
    moved = true;
  }
  return moved;
}

bool ProcessSet::DecideMarks() {
  bool moved = false;
  while (head_ != next_ && !gave_up_) {
    if (const int missing = announcer_->Missing(epoch_, head_); missing >= 0) {
      // Members put their marks in order, so this one wants none of what is announced here so far.
      late_ = missing;
      late_below_ = next_;
      break;
    }
    moved = true;
    if (!announcer_->Agreed(head_)) {
      CloseEpoch();
      break;
    }
    Operation* op = announced_.front();
    if (options_.mail != nullptr && !CheckMail(*op, head_)) break;
    announced_.pop_front();
    StartAnnounced(op, head_++);
  }
  return moved;
}

bool ProcessSet::ReadyFor(Shortcut* shortcut) {
  if (!announcing_ || in_flight_.load(std::memory_order_relaxed) > 0 || head_ != next_ || !waiting_.empty()) {
    return false;
  }
  if (left_.code != Code::kOk || joined_ != nullptr || gave_up_ || closed_) return false;
  if (shortcut->plans == book_.changes()) return true;
  const controller::PlanPtr plan = book_.Match(shortcut->request);
  if (plan == nullptr) return false;
  shortcut->uid = plan->uid;
  shortcut->plans = book_.changes();
  return true;
}

bool ProcessSet::BeginShort(const Shortcut& shortcut) {
  if (options_.announce->Publish(epoch_, next_, shortcut.uid, 0, shortcut.work) != Outcome::kPublished) return false;
  ++next_;
  return true;
}

ProcessSet::ShortStep ProcessSet::StepShort(Shortcut* shortcut) {
  const auto look = options_.announce->LookAt(epoch_, head_, shortcut->uid);
  if (look.missing >= 0) {
    late_ = look.missing;
    late_below_ = next_;
    return ShortStep::kWaiting;
  }
  if (!look.finishes) return ShortStep::kOrdinary;
  // Of the few nanoseconds that less takes nobody wants an account.
  constexpr size_t kWorthTiming = 1 << 10;
  shortcut->agreed = shortcut->work.payload.bytes() >= kWorthTiming ? options_.recorder->Now() : 0;
  options_.announce->Finish(head_, shortcut->work);
  options_.announce->Release(head_++);
  options_.announce->PrepareFor(head_, shortcut->work.payload.bytes());
  return ShortStep::kDone;
}

void ProcessSet::AdoptShort(Operation* op, const Shortcut& shortcut) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  PrepareWork(op);
  op->uid = shortcut.uid;
  op->state = State::kAnnounced;
  announced_.push_back(op);
}

void ProcessSet::CloseEpoch() {
  announcer_->Release(head_);
  std::vector<Operation*> rest(announced_.begin(), announced_.end());
  rest.insert(rest.end(), waiting_.begin(), waiting_.end());
  announced_.clear();
  waiting_.clear();
  next_ = ++head_;
  announcer_->Withdraw(head_);
  ++epoch_;
  options_.resume_policy.Closed(head_ - 1 - epoch_first_);
  epoch_first_ = head_;
  announcing_ = false;
  late_below_ = 0;
  epoch_closed_ = true;
  log_dirty_ = true;  // the sequencer may resume at once
  for (Operation* op : rest) {
    if (op == nullptr) continue;
    left_.code == Code::kOk ? Tell(op) : Finish(op, left_);
  }
  if (join_waits_) {
    join_waits_ = false;
    Tell(joined_);
  }
}

void ProcessSet::Resume(uint64_t epoch) {
  // The sequencer saw all marks of the closing position before it logged this. So in memory they are visible here, too;
  // by mail this entry has waited for them.
  while (epoch_ < epoch && DecideMarks()) {
  }
  if (epoch_ != epoch || !epoch_closed_) {
    GiveUp({Code::kInternal, "announcement epochs differ between ranks"});
    return;
  }
  epoch_closed_ = false;
  if (sent_.empty()) {
    announcing_ = true;
  } else {
    waiting_.push_back(nullptr);
    PublishMarks();
  }
}

void ProcessSet::StartAnnounced(Operation* op, uint64_t position) {
  const int last = position < late_below_ ? late_ : options_.me;
  options_.recorder->Agreed(op, id(), position, options_.ranks[last]);
  Running running;
  running.ops.push_back(op);
  running.position = position;
  running.announced = true;
  if (SizesResult(op->work.op)) {
    std::vector<int64_t> first_dims(size());
    for (int m = 0; m < size(); ++m) first_dims[m] = announcer_->FirstDim(m, position);
    if (!PrepareResult(op, op->work.op == OpKind::kAlltoall ? controller::EvenRows(first_dims) : first_dims)) {
      allocating_.push_back(std::move(running));
      return;
    }
  }
  op->state = State::kRunning;
  options_.recorder->RunningAtOnce(op);
  running.machine = announcer_->Begin(position, &op->work);
  if (running.machine != nullptr) {
    running_.push_back(std::move(running));
    return;
  }
  announcer_->Release(position);
  Finish(op, kSuccess);
}

}  // namespace hvd::engine
