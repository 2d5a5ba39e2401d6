// SPDX-License-Identifier: Apache-2.0
// The announcing road; see process_set.h.
#include "hvd/engine/process_set.h"

namespace hvd::engine {

using Look = comm::host::WindowCommunicator::Look;
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
      GiveUp(comm::host::WindowCommunicator::NoStaging());
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

bool ProcessSet::StepMarks(bool* left) {
  bool moved = !waiting_.empty() && PublishMarks();
  if (head_ != next_) moved |= DecideMarks();
  *left = head_ != next_ && !gave_up_;
  return moved;
}

bool ProcessSet::ReadyFor(Shortcut* shortcut) {
  if (!announcing_ || in_flight_.load(std::memory_order_relaxed) > 0 || head_ != next_ || !waiting_.empty()) {
    return false;
  }
  if (left_.code != Code::kOk || joined_ != nullptr || gave_up_ || closed_ || wanted_) return false;
  if (shortcut->plans == book_.changes()) return true;
  const controller::PlanPtr plan = book_.Match(shortcut->request);
  if (plan == nullptr) return false;
  shortcut->uid = plan->uid;
  shortcut->plans = book_.changes();
  shortcut->may_be_direct = options_.announce->MayBeDirect(shortcut->work.op, shortcut->work.payload.bytes());
  return true;
}

bool ProcessSet::BeginShort(const Shortcut& shortcut) {
  if (options_.announce->Publish(epoch_, next_, shortcut.uid, 0, shortcut.work) != Outcome::kPublished) return false;
  ++next_;
  return true;
}

ProcessSet::ShortStep ProcessSet::StepShort(Shortcut* shortcut) {
  if (shortcut->reduced > 0) {
    if (options_.announce->Storing(head_, shortcut->reduced) >= 0) return ShortStep::kWaiting;
    options_.announce->TakeResult(head_, shortcut->work);
    LeaveShortPosition(*shortcut);
    return ShortStep::kDone;
  }
  const size_t bytes = shortcut->work.payload.bytes();
  const auto look = options_.announce->LookAt(epoch_, head_, shortcut->uid, shortcut->work);
  if (look.missing >= 0) {
    late_ = look.missing;
    late_below_ = next_;
    return ShortStep::kWaiting;
  }
  if (look.data == Look::Data::kOther) return ShortStep::kOrdinary;
  // Of the few nanoseconds that less takes nobody wants an account.
  constexpr size_t kWorthTiming = 1 << 10;
  const bool sliced = look.data == Look::Data::kSliced;
  shortcut->agreed = sliced || bytes >= kWorthTiming ? options_.recorder->Now() : 0;
  if (sliced) {
    shortcut->reduced = options_.announce->ReduceSlices(head_, shortcut->work);
    return ShortStep::kReduced;
  }
  options_.announce->Finish(head_, shortcut->work);
  LeaveShortPosition(*shortcut);
  return ShortStep::kDone;
}

void ProcessSet::LeaveShortPosition(const Shortcut& shortcut) {
  options_.announce->Release(head_++);
  options_.announce->PrepareFor(head_, shortcut.work.payload.bytes());
}

void ProcessSet::AdoptShort(Operation* op, const Shortcut& shortcut) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  PrepareWork(op);
  op->uid = shortcut.uid;
  if (shortcut.reduced == 0) {
    op->state = State::kAnnounced;
    announced_.push_back(op);
    return;
  }
  if (SizesResult(op->work.op)) PrepareResult(op, {});
  op->state = State::kRunning;
  const uint64_t position = head_++;
  options_.recorder->AgreedAt(shortcut.agreed, op, id(), position, LastOfShort());
  options_.recorder->RunningAtOnce(op);
  running_.push_back(Announced(op, position, options_.announce->GoOn(position, &op->work, shortcut.reduced)));
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

bool ProcessSet::ReachClosed(uint64_t epoch) {
  // The sequencer saw all marks of the closing position before it logged this. So in memory they are visible here, too;
  // by mail this entry has waited for them.
  while (epoch_ < epoch && DecideMarks()) {
  }
  if (epoch_ == epoch && epoch_closed_) return true;
  GiveUp({Code::kInternal, "announcement epochs differ between ranks"});
  return false;
}

void ProcessSet::Resume(uint64_t epoch) {
  if (!ReachClosed(epoch)) return;
  epoch_closed_ = false;
  if (sent_.empty()) {
    announcing_ = true;
  } else {
    waiting_.push_back(nullptr);
    PublishMarks();
  }
}

ProcessSet::Running ProcessSet::Announced(Operation* op, uint64_t position,
                                          std::unique_ptr<collective::Machine> machine) {
  Running running;
  running.machine = std::move(machine);
  running.ops.push_back(op);
  running.position = position;
  running.announced = true;
  return running;
}

void ProcessSet::StartAnnounced(Operation* op, uint64_t position) {
  const int last = position < late_below_ ? late_ : options_.me;
  options_.recorder->Agreed(op, id(), position, options_.ranks[last]);
  if (SizesResult(op->work.op)) {
    std::vector<int64_t> first_dims(size());
    for (int m = 0; m < size(); ++m) first_dims[m] = announcer_->FirstDim(m, position);
    if (!PrepareResult(op, op->work.op == OpKind::kAlltoall ? controller::EvenRows(first_dims) : first_dims)) {
      allocating_.push_back(Announced(op, position, nullptr));
      return;
    }
  }
  op->state = State::kRunning;
  options_.recorder->RunningAtOnce(op);
  if (auto machine = announcer_->Begin(position, &op->work); machine != nullptr) {
    running_.push_back(Announced(op, position, std::move(machine)));
    return;
  }
  announcer_->Release(position);
  Finish(op, kSuccess);
}

}  // namespace hvd::engine
