// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loops for simulation: any number of them share one virtual clock, one thread turns them in a fixed order, and time
// moves only when told. The same program therefore runs the same way every time.
//
//   SimClock clock;
//   SimLoop a(&clock), b(&clock);
//   while (clock.TurnAll() || clock.AdvanceToNext()) {}   // until nothing is left to happen
//
// Thread safety: none, but SimLoop::Wake. Lifetime: the clock outlives its loops.

#include <atomic>
#include <optional>
#include <vector>

#include "hvd/loop/loop.h"
#include "hvd/loop/timer_queue.h"

namespace hvd::loop {

class SimLoop;

class SimClock final : public Clock {
 public:
  Time Now() const override { return now_; }
  void Advance(Duration by) { now_ += by; }
  // Never moves back.
  void AdvanceTo(Time when);
  // The earliest timer of any loop.
  std::optional<Time> NextTimer() const;
  // Moves to the earliest timer of any loop; false if there is none.
  bool AdvanceToNext();
  // One turn of every loop, in order of creation; whether any handler ran.
  bool TurnAll();

 private:
  friend class SimLoop;

  Time now_{std::chrono::seconds(1)};  // not 0, which would hide a time that nobody set
  std::vector<SimLoop*> loops_;
};

class SimLoop final : public Loop {
 public:
  explicit SimLoop(SimClock* clock);
  ~SimLoop() override;
  SimLoop(const SimLoop&) = delete;
  SimLoop& operator=(const SimLoop&) = delete;

  Time Now() const override { return clock_->Now(); }
  // Descriptors are outside of the simulation: kUnimplemented.
  Status Watch(int fd, uint32_t events, FdHandler handler) override;
  Status Rearm(int fd, uint32_t events) override;
  void Unwatch(int /*fd*/) override {}
  TimerId At(Time when, std::function<void()> call) override { return timers_.Add(when, std::move(call)); }
  void Cancel(TimerId id) override { timers_.Cancel(id); }
  void Defer(std::function<void()> call) override { deferred_.push_back(std::move(call)); }
  // Never waits, whatever max_wait says: waiting is AdvanceToNext of the clock.
  bool RunOnce(Duration max_wait) override;
  void Wake() override { woken_.store(true, std::memory_order_release); }
  void WakeIn(Duration /*delay*/) override { Wake(); }
  int poll_fd() const override { return -1; }
  int wake_fd() const override { return -1; }
  int watched() const override { return 0; }

  // Whether Wake() was called since the last time that this was asked.
  bool TakeWake() { return woken_.exchange(false, std::memory_order_acq_rel); }
  std::optional<Time> next_timer() const { return timers_.next(); }

 private:
  SimClock* const clock_;
  TimerQueue timers_;
  std::vector<std::function<void()>> deferred_;
  std::atomic<bool> woken_{false};
};

}  // namespace hvd::loop
