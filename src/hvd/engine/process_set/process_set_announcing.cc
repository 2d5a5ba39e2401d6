// SPDX-License-Identifier: Apache-2.0
// Agreement by announcement; see process_set.h.
#include "hvd/engine/process_set/process_set.h"

namespace hvd::engine {

using Look = comm::builtin::WindowCommunicator::Look;
using Outcome = comm::Announcer::Outcome;
using State = Operation::State;

bool ProcessSet::Announces(const controller::Signature& signature) {
  return controller::Repeats(signature) && signature.reduce_op != ReduceOp::kAdasum;
}

bool ProcessSet::PublishMarks() {
  static const comm::Work kNoWork;
  bool moved = false;
  while (!stages_.waiting.empty()) {
    Operation* op = stages_.waiting.front();
    const Outcome outcome = op == nullptr ? announcer_->Publish(epoch_.number, epoch_.next, 0, 0, kNoWork)
                                          : announcer_->Publish(epoch_.number, epoch_.next, op->uid,
                                                                controller::FirstDim(op->request.signature), op->work);
    if (outcome == Outcome::kBusy) break;
    if (outcome == Outcome::kExhausted) {
      GiveUp(comm::builtin::WindowCommunicator::NoStaging());
      break;
    }
    stages_.waiting.pop_front();
    stages_.announced.push_back(op);
    ++epoch_.next;
    moved = true;
  }
  return moved;
}

bool ProcessSet::DecideMarks() {
  bool moved = false;
  while (epoch_.undecided() && !gave_up_) {
    if (const int missing = announcer_->Missing(epoch_.number, epoch_.head); missing >= 0) {
      // Members put their marks in order, so this one wants none of what is announced here so far.
      epoch_.late = missing;
      epoch_.late_below = epoch_.next;
      break;
    }
    moved = true;
    if (const int damaged = announcer_->Damaged(epoch_.number, epoch_.head); damaged >= 0) {
      GiveUpDamaged(damaged);
      break;
    }
    if (!announcer_->Agreed(epoch_.head)) {
      CloseEpoch();
      break;
    }
    Operation* op = stages_.announced.front();
    if (options_.messages != nullptr && !CheckMessages(*op, epoch_.head)) break;
    std::vector<int64_t> rows;
    if (SizesResult(op->work.op)) {
      rows = AnnouncedRows(op->work.op, epoch_.head);
      if (!CheckRows(op->request.name, op->request.signature, rows)) break;
    }
    stages_.announced.pop_front();
    StartAnnounced(op, rows, epoch_.head++);
  }
  return moved;
}

void ProcessSet::CheckMarks() {
  if (gave_up_) return;
  // A mark that cannot be put yet waits for slots, which other members say that they have released.
  const bool waits = epoch_.undecided() || (announcer_ != nullptr && !stages_.waiting.empty());
  int damaged = waits ? announcer_->Damaged(epoch_.number, epoch_.head) : -1;
  for (size_t i = 0; i < stages_.running.size() && damaged < 0; ++i) damaged = stages_.running[i].machine->Damaged();
  if (damaged >= 0) GiveUpDamaged(damaged);
}

void ProcessSet::GiveUpDamaged(int member) {
  const Rank rank = options_.ranks[member];
  Error error = {Code::kInternal, fmt::format("a mark of rank {} in shared memory is damaged: a rank of this host has "
                                              "written where it must not",
                                              rank)};
  error.rank = rank;
  GiveUp(std::move(error));
}

bool ProcessSet::StepMarks(bool* left) {
  bool moved = !stages_.waiting.empty() && PublishMarks();
  if (epoch_.undecided()) moved |= DecideMarks();
  *left = epoch_.undecided() && !gave_up_;
  return moved;
}

bool ProcessSet::ReadyFor(FastPathEntry* entry) {
  if (!epoch_.announcing || in_flight_.load(std::memory_order_relaxed) > 0 || epoch_.undecided() ||
      !stages_.waiting.empty()) {
    return false;
  }
  if (left_.code != Code::kOk || join_.op != nullptr || gave_up_ || closed_ || wanted_) return false;
  if (entry->plans == book_.changes()) return true;
  const controller::PlanPtr plan = book_.Match(entry->request);
  if (plan == nullptr) return false;
  entry->uid = plan->uid;
  entry->plans = book_.changes();
  entry->may_be_direct = options_.announce->MayBeDirect(entry->work.op, entry->work.payload.bytes());
  return true;
}

bool ProcessSet::BeginFastPath(const FastPathEntry& entry) {
  if (options_.announce->Publish(epoch_.number, epoch_.next, entry.uid, 0, entry.work) != Outcome::kPublished)
    return false;
  ++epoch_.next;
  return true;
}

ProcessSet::FastPathStep ProcessSet::StepFastPath(FastPathEntry* entry) {
  if (entry->reduced > 0) {
    if (options_.announce->Storing(epoch_.head, entry->reduced) >= 0) return FastPathStep::kWaiting;
    options_.announce->TakeResult(epoch_.head, entry->work);
    LeaveFastPathPosition(*entry);
    return FastPathStep::kDone;
  }
  const size_t bytes = entry->work.payload.bytes();
  const auto look = options_.announce->LookAt(epoch_.number, epoch_.head, entry->uid, entry->work);
  if (look.missing >= 0) {
    epoch_.late = look.missing;
    epoch_.late_below = epoch_.next;
    return FastPathStep::kWaiting;
  }
  if (look.data == Look::Data::kOther) return FastPathStep::kOrdinary;
  // Smaller operations finish within nanoseconds: do not spend a clock read on them.
  constexpr size_t kWorthTiming = 1 << 10;
  const bool sliced = look.data == Look::Data::kSliced;
  entry->agreed = sliced || bytes >= kWorthTiming ? options_.recorder->Now() : 0;
  if (sliced) {
    entry->reduced = options_.announce->ReduceSlices(epoch_.head, entry->work);
    return FastPathStep::kReduced;
  }
  options_.announce->Finish(epoch_.head, entry->work);
  LeaveFastPathPosition(*entry);
  return FastPathStep::kDone;
}

void ProcessSet::LeaveFastPathPosition(const FastPathEntry& entry) {
  options_.announce->Release(epoch_.head++);
  options_.announce->PrepareFor(epoch_.head, entry.work.payload.bytes());
}

void ProcessSet::AdoptFastPath(Operation* op, const FastPathEntry& entry) {
  in_flight_.fetch_add(1, std::memory_order_relaxed);
  PrepareWork(op);
  op->uid = entry.uid;
  if (entry.reduced == 0) {
    op->state = State::kAnnounced;
    stages_.announced.push_back(op);
    return;
  }
  if (SizesResult(op->work.op)) PrepareResult(op, {});
  op->state = State::kRunning;
  const uint64_t position = epoch_.head++;
  options_.recorder->AgreedAt(entry.agreed, op, id(), position, LastOfFastPath());
  options_.recorder->RunningAtOnce(op);
  stages_.running.push_back(Announced(op, position, options_.announce->GoOn(position, &op->work, entry.reduced)));
}

void ProcessSet::CloseEpoch() {
  announcer_->Release(epoch_.head);
  std::vector<Operation*> rest(stages_.announced.begin(), stages_.announced.end());
  rest.insert(rest.end(), stages_.waiting.begin(), stages_.waiting.end());
  stages_.announced.clear();
  stages_.waiting.clear();
  epoch_.next = ++epoch_.head;
  announcer_->Withdraw(epoch_.head);
  ++epoch_.number;
  options_.resume_policy.Closed(epoch_.head - 1 - epoch_.first);
  epoch_.first = epoch_.head;
  epoch_.announcing = false;
  epoch_.late_below = 0;
  epoch_.closed = true;
  log_dirty_ = true;  // the sequencer may resume at once
  for (Operation* op : rest) {
    if (op == nullptr) continue;
    left_.code == Code::kOk ? Tell(op) : Finish(op, left_);
  }
  if (join_.waits) {
    join_.waits = false;
    Tell(join_.op);
  }
}

bool ProcessSet::ReachClosed(uint64_t epoch) {
  // The sequencer saw all marks of the closing position before it logged this. So in memory they are visible here, too;
  // by mark message this entry has waited for them.
  while (epoch_.number < epoch && DecideMarks()) {
  }
  if (epoch_.number == epoch && epoch_.closed) return true;
  GiveUp({Code::kInternal, "announcement epochs differ between ranks"});
  return false;
}

void ProcessSet::Resume(uint64_t epoch) {
  if (!ReachClosed(epoch)) return;
  epoch_.closed = false;
  if (stages_.sent.empty()) {
    epoch_.announcing = true;
  } else {
    stages_.waiting.push_back(nullptr);
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

std::vector<int64_t> ProcessSet::AnnouncedRows(OpKind op, uint64_t position) const {
  std::vector<int64_t> first_dims(size());
  for (int m = 0; m < size(); ++m) first_dims[m] = announcer_->FirstDim(m, position);
  return op == OpKind::kAlltoall ? controller::EvenRows(first_dims) : first_dims;
}

void ProcessSet::StartAnnounced(Operation* op, const std::vector<int64_t>& rows, uint64_t position) {
  const int last = position < epoch_.late_below ? epoch_.late : options_.me;
  options_.recorder->Agreed(op, id(), position, options_.ranks[last]);
  if (SizesResult(op->work.op) && !PrepareResult(op, rows)) {
    stages_.allocating.push_back(Announced(op, position, nullptr));
    return;
  }
  op->state = State::kRunning;
  options_.recorder->RunningAtOnce(op);
  if (auto machine = announcer_->Begin(position, &op->work); machine != nullptr) {
    stages_.running.push_back(Announced(op, position, std::move(machine)));
    return;
  }
  announcer_->Release(position);
  Finish(op, kSuccess);
}

}  // namespace hvd::engine
