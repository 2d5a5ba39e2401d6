// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/elastic/membership.h"

#include <algorithm>
#include <iterator>

namespace hvd::launch::elastic {
namespace {

// A slot whose processes fail this often before the first view is not waited for.
constexpr int kStartAttempts = 3;
// Members that end by themselves this often in a row, without a commit in between, have an error that stays.
constexpr int kFruitless = 5;

int BackOff(int failures) {
  constexpr int kSeconds[] = {0, 1, 2, 4, 8, 16, 32, 60};
  return kSeconds[std::min<size_t>(static_cast<size_t>(std::max(failures, 1)) - 1, std::size(kSeconds) - 1)];
}

}  // namespace

std::vector<Action> Membership::Step(const Event& event) {
  if (phase_ == Phase::kEnded) return {};
  switch (event.kind) {
    case Event::Kind::kHosts:
      OnHosts(event.hosts);
      break;
    case Event::Kind::kReady:
      OnReady(event);
      break;
    case Event::Kind::kCommitted:
      OnCommitted(event);
      break;
    case Event::Kind::kDone:
      OnDone(event.process);
      break;
    case Event::Kind::kEnded:
      OnEnded(event);
      break;
    case Event::Kind::kFired:
      OnFired(event);
      break;
  }
  Advance();
  return std::exchange(actions_, {});
}

void Membership::OnHosts(const std::vector<Host>& hosts) {
  const bool first = view_.generation == 0 && hosts_.empty() && processes_.empty();
  const bool lacked = Slots() < rules_.min_np;
  hosts_ = hosts;
  if (phase_ == Phase::kStarting) AwaitSlots(first, lacked);
  for (auto& [number, process] : processes_) {
    process.removed = !IsActive(process.slot);
    if (!process.removed || IsMember(process) || process.state == State::kLeaving) continue;
    const bool waits = process.state == State::kReady;
    Do({.kind = waits ? Action::Kind::kLeave : Action::Kind::kEnd, .process = number});
    process.state = State::kLeaving;
  }
}

void Membership::AwaitSlots(bool first, bool lacked) {
  const bool lacks = Slots() < rules_.min_np;
  if (!first && lacks == lacked) return;
  Do({.kind = lacks ? Action::Kind::kArm : Action::Kind::kDisarm, .timer = Timer::kElastic});
  Do({.kind = lacks ? Action::Kind::kDisarm : Action::Kind::kArm, .timer = Timer::kStart});
  if (lacks) Do({.kind = Action::Kind::kWait});
}

void Membership::OnReady(const Event& event) {
  const auto found = processes_.find(event.process);
  if (found == processes_.end() || found->second.state == State::kLeaving) return;
  Process& process = found->second;
  process.aligned = event.aligned;
  process.commit = event.commit;
  if (process.state == State::kDone) {
    // The program trains once more, and so do the others, who were done with the same training.
    draining_ = false;
    for (auto& [number, one] : processes_) {
      if (one.state == State::kDone) one.state = State::kRunning;
    }
  }
  if (process.was_member && !IsMember(process)) {
    Do({.kind = Action::Kind::kDisarm, .slot = process.slot, .timer = Timer::kParked});
  }
  process.state = State::kReady;
  if (process.removed && !IsMember(process)) {
    process.state = State::kLeaving;
    Do({.kind = Action::Kind::kLeave, .process = event.process});
  } else if (IsMember(process)) {
    if (phase_ == Phase::kStable) phase_ = Phase::kRevoked;
    const bool first = std::ranges::none_of(processes_, [&](const auto& one) {
      return one.first != event.process && IsMember(one.second) && one.second.state == State::kReady;
    });
    if (first) Do({.kind = Action::Kind::kArm, .timer = Timer::kLate});
  }
}

void Membership::OnCommitted(const Event& event) {
  const auto found = processes_.find(event.process);
  // A process outside of the view knows nothing of what its members did since.
  if (found == processes_.end() || !IsMember(found->second) || event.generation != view_.generation) return;
  committed_ = event.generation;
  fruitless_ = 0;
  // The process works, so the slot does; its next process waits for a second at most.
  int& failures = slots_[found->second.slot].failures;
  failures = std::min(failures, 1);
}

void Membership::OnDone(int process) {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return;
  found->second.state = State::kDone;
  draining_ = true;
}

void Membership::OnEnded(const Event& event) {
  const auto found = processes_.find(event.process);
  if (found == processes_.end()) return;
  const Process process = found->second;
  processes_.erase(found);
  if (process.state == State::kLeaving) return;
  if (event.good) {
    draining_ = true;
    return;
  }
  if (process.state == State::kDone) return;
  SlotState& slot = slots_[process.slot];
  const int seconds = BackOff(++slot.failures);
  slot.pending = seconds > 0;
  if (slot.pending) {
    Do({.kind = Action::Kind::kArm, .slot = process.slot, .timer = Timer::kRespawn, .seconds = seconds});
  }
  if (!IsMember(process)) return;
  lost_.push_back(event.process);
  if (event.by_itself && ++fruitless_ >= kFruitless) {
    return Fail("ranks end one after the other by themselves, with no commit between");
  }
  if (phase_ == Phase::kStable) phase_ = Phase::kRevoked;
}

void Membership::OnFired(const Event& event) {
  switch (event.timer) {
    case Timer::kRespawn:
      slots_[event.slot].pending = false;
      break;
    case Timer::kStart:
      if (phase_ != Phase::kStarting) break;
      is_late_ = true;
      if (CanForm()) break;
      Do({.kind = Action::Kind::kArm, .timer = Timer::kElastic});
      Do({.kind = Action::Kind::kWait});
      break;
    case Timer::kElastic:
      if (phase_ == Phase::kStarting || phase_ == Phase::kWaiting) Fail("too few ranks became ready in time");
      break;
    case Timer::kLate:
      if (phase_ == Phase::kRevoked) OnLate();
      break;
    case Timer::kParked:
      OnParkedTooLong(event.slot);
      break;
  }
}

void Membership::OnLate() {
  // Without the late ones the others could not go on.
  if (!CanForm()) return Do({.kind = Action::Kind::kArm, .timer = Timer::kLate});
  for (const int number : Awaited()) {
    Process& process = processes_.at(number);
    process.rank = -1;
    parked_.push_back(number);
    Do({.kind = Action::Kind::kArm, .slot = process.slot, .timer = Timer::kParked});
  }
}

void Membership::OnParkedTooLong(const SlotName& slot) {
  for (const auto& [number, process] : processes_) {
    const bool is_parked = process.was_member && !IsMember(process) && process.state == State::kRunning;
    if (process.slot == slot && is_parked) Do({.kind = Action::Kind::kKill, .process = number});
  }
}

void Membership::Advance() {
  if (phase_ == Phase::kEnded) return;
  CheckEnd();
  if (phase_ == Phase::kEnded) return;
  Fill();
  if (phase_ == Phase::kStarting) CheckStart();
  if (phase_ == Phase::kRevoked || phase_ == Phase::kWaiting) CheckRevoked();
  if (phase_ == Phase::kStable) {
    Fill();  // the job may be larger once it has begun
    Announce();
  }
}

void Membership::Fill() {
  if (draining_) return;
  // The first view is that of -np processes. Others join it when they enter their training function.
  const int most = phase_ == Phase::kStarting ? std::min(rules_.wanted, rules_.max_np) : rules_.max_np;
  for (const Host& host : hosts_) {
    for (int index = 0; index < host.slots && Live() < most; ++index) {
      const SlotName slot{host.name, index};
      if (slots_[slot].pending) continue;
      if (std::ranges::any_of(processes_, [&](const auto& one) { return one.second.slot == slot; })) continue;
      processes_[next_] = {.slot = slot};
      Do({.kind = Action::Kind::kSpawn, .process = next_++, .slot = slot});
    }
  }
}

void Membership::CheckStart() {
  int fresh = 0, usable = 0, failed = 0;  // processes that start for the first time; slots
  for (const auto& [number, process] : processes_) {
    if (process.state == State::kBooting && slots_[process.slot].failures == 0) ++fresh;
  }
  for (const auto& [slot, state] : slots_) {
    if (!IsActive(slot)) continue;
    if (state.failures < kStartAttempts) ++usable;
    if (state.failures > 0) ++failed;
  }
  if (failed > 0 && fresh == 0 && Ready() == 0 && !draining_) {
    const bool all =
        failed == static_cast<int>(std::ranges::count_if(slots_, [&](const auto& one) { return IsActive(one.first); }));
    if (all || usable < rules_.min_np) return Fail("no rank reached hvd.init()");
  }
  if (failed > 0 && usable < rules_.min_np && !draining_) return Fail("too few ranks reached hvd.init()");
  const int needed = failed > 0 || is_late_ ? rules_.min_np : rules_.wanted;
  if (CanForm() && (is_late_ || fresh == 0) && (draining_ || Ready() >= needed)) Form();
}

void Membership::CheckRevoked() {
  if (!Awaited().empty()) return;
  const bool survives = std::ranges::any_of(processes_, [](const auto& one) {
    return one.second.was_member && one.second.state != State::kLeaving && one.second.state != State::kDone;
  });
  if (!survives) {
    if (!draining_) Fail("every rank was lost, and with them the state of the training");
    return;
  }
  if (draining_ && DismissNewcomers()) return CheckEnd();
  if (CanForm()) return Form();
  if (phase_ == Phase::kWaiting) return;
  phase_ = Phase::kWaiting;
  Do({.kind = Action::Kind::kArm, .timer = Timer::kElastic});
  Do({.kind = Action::Kind::kWait});
}

bool Membership::DismissNewcomers() {
  const std::vector<int> candidates = Candidates();
  const bool holds = std::ranges::any_of(candidates, [&](int one) { return processes_.at(one).aligned >= committed_; });
  if (holds || candidates.empty()) return false;
  for (const int number : candidates) {
    processes_.at(number).state = State::kLeaving;
    Do({.kind = Action::Kind::kLeave, .process = number});
  }
  return true;
}

void Membership::CheckEnd() {
  if (!draining_) return;
  const bool trains = std::ranges::any_of(processes_, [&](const auto& one) {
    const Process& process = one.second;
    // One that was left behind has nobody to train with.
    const bool counts = IsMember(process) || phase_ == Phase::kStarting;
    return counts && process.state != State::kDone && process.state != State::kLeaving;
  });
  if (trains) return;
  for (auto& [number, process] : processes_) {
    if (process.state == State::kDone || process.state == State::kLeaving) continue;
    const bool waits = process.state == State::kReady;
    Do({.kind = waits ? Action::Kind::kLeave : Action::Kind::kEnd, .process = number});
    process.state = State::kLeaving;
  }
  if (!processes_.empty()) return;
  phase_ = Phase::kEnded;
  Do({.kind = Action::Kind::kFinish});
}

void Membership::Announce() {
  if (announced_ || draining_) return;
  int members = 0;
  bool added = false, removed = false;
  for (const auto& [number, process] : processes_) {
    members += IsMember(process) && !process.removed ? 1 : 0;
    removed |= IsMember(process) && process.removed;
    added |= !IsMember(process) && process.state == State::kReady;
  }
  added &= members < rules_.max_np;
  if (!added && !removed) return;
  announced_ = true;
  Do({.kind = Action::Kind::kNews, .news = !removed ? News::kAdded : added ? News::kMixed : News::kRemoved});
}

std::vector<int> Membership::Awaited() const {
  std::vector<int> awaited;
  for (const auto& [number, process] : processes_) {
    if (IsMember(process) && process.state == State::kRunning) awaited.push_back(number);
  }
  return awaited;
}

int Membership::Ready() const { return static_cast<int>(Candidates().size()); }

std::vector<int> Membership::Candidates() const {
  std::vector<int> candidates;
  for (const auto& [number, process] : processes_) {
    if (process.state == State::kReady && !process.removed) candidates.push_back(number);
  }
  return candidates;
}

bool Membership::CanForm() const { return Ready() >= (draining_ ? 1 : rules_.min_np); }

bool Membership::IsActive(const SlotName& slot) const {
  return std::ranges::any_of(hosts_,
                             [&](const Host& host) { return host.name == slot.host && slot.index < host.slots; });
}

int Membership::Slots() const {
  int slots = 0;
  for (const Host& host : hosts_) slots += host.slots;
  return slots;
}

int Membership::Live() const {
  return static_cast<int>(std::ranges::count_if(processes_, [](const auto& one) {
    return !one.second.removed && one.second.state != State::kLeaving && one.second.state != State::kDone;
  }));
}

void Membership::Fail(std::string why) {
  phase_ = Phase::kEnded;
  Do({.kind = Action::Kind::kFail, .why = std::move(why)});
}

}  // namespace hvd::launch::elastic
