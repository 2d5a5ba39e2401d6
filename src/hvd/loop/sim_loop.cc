// SPDX-License-Identifier: Apache-2.0
#include "hvd/loop/sim_loop.h"

#include <algorithm>

namespace hvd::loop {

void SimClock::AdvanceTo(Time when) { now_ = std::max(now_, when); }

std::optional<Time> SimClock::NextTimer() const {
  std::optional<Time> earliest;
  for (const SimLoop* loop : loops_) {
    const auto next = loop->next_timer();
    if (next && (!earliest || *next < *earliest)) earliest = next;
  }
  return earliest;
}

bool SimClock::AdvanceToNext() {
  const auto next = NextTimer();
  if (!next) return false;
  AdvanceTo(*next);
  return true;
}

bool SimClock::TurnAll() {
  bool ran = false;
  // By index: a handler may create a loop.
  for (size_t i = 0; i < loops_.size(); ++i) ran |= loops_[i]->RunOnce(Duration::zero());
  return ran;
}

SimLoop::SimLoop(SimClock* clock) : clock_(clock) { clock_->loops_.push_back(this); }

SimLoop::~SimLoop() { std::erase(clock_->loops_, this); }

Status SimLoop::Watch(int fd, uint32_t /*events*/, FdHandler /*handler*/) {
  return Fail(Code::kUnimplemented, "a simulated loop cannot watch descriptor {}", fd);
}

Status SimLoop::Rearm(int fd, uint32_t /*events*/) {
  return Fail(Code::kUnimplemented, "a simulated loop cannot watch descriptor {}", fd);
}

bool SimLoop::RunOnce(Duration /*max_wait*/) {
  std::vector<std::function<void()>> calls;
  calls.swap(deferred_);
  for (auto& call : calls) {
    call();
    call = nullptr;
  }
  const bool timers = timers_.RunDue(Now());
  return timers || !calls.empty();
}

}  // namespace hvd::loop
