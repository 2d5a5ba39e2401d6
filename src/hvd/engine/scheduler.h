// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decides which thread of this rank drives the engine, and how a thread waits: it spins, then yields where there are
// more ranks than cores, then sleeps in the loop.
//
// caller   A thread that waits for an operation drives the engine until that operation is over.
// thread   The engine's own thread drives it while anything is unfinished and no caller waits.
//
// Thread safety: Wait, Poll, Stop, crowded and joinable from any thread; the rest with the progress token.
// Lifetime: what the constructor is given outlives it.

#include <atomic>
#include <string>
#include <thread>

#include "hvd/engine/completer.h"
#include "hvd/engine/engine_context.h"
#include "hvd/engine/engine_work.h"
#include "hvd/engine/progress_token.h"

namespace hvd::engine {

class Scheduler {
 public:
  Scheduler(const EngineContext& context, ProgressToken* token, Completer* completer, EngineWork* work);

  // Starts the engine's thread. `core`: the core to which it is bound; -1: none.
  void StartThread(int core);
  // Whether there is a thread that finishes what callers leave behind.
  bool joinable() const { return thread_.joinable(); }
  // Ends the thread. Claim the token before, so that no wait of a caller takes it meanwhile.
  void Stop();

  // Drives the engine, or waits, until the operation is over or the time has come. Returns whether it is over.
  bool Wait(Operation* op, Time until);
  // As Wait, with the token in hand and the time not passed.
  void DriveUntilOver(Operation* op, Time until);
  // Polls the other announced operations of the set and finishes those that are agreed.
  void FinishAnnounced(ProcessSet* set);
  // Makes progress once if the token is free. Returns whether anything moved.
  bool Poll();

  // Whether this rank's program waits for an operation.
  bool IsCallerWaiting(Time now) const;
  // Whether the host has more ranks than cores, so that threads yield instead of spinning.
  bool crowded() const { return crowded_; }
  // How often a thread spins before it yields or sleeps, and what that was at the start.
  int spin_limit() const { return spin_limit_; }
  int first_spin_limit() const { return first_spin_limit_; }
  void SetSpinLimit(int spins) { spin_limit_ = spins; }

 private:
  void SleepUntil(Time until);
  // When to check operations that are polled; max: there is none.
  Time NextPoll(Time now);
  void Main();

  const EngineContext context_;
  loop::Loop* const loop_;
  transport::Window* const window_;  // nullptr: no shared memory
  ProgressToken* const token_;
  Completer* const completer_;
  EngineWork* const work_;

  bool crowded_ = false;
  int spin_limit_ = 0;
  int first_spin_limit_ = 0;
  const Operation* driven_for_ = nullptr;  // the operation whose caller drives the engine
  Time still_since_{};                     // when what is polled was last seen to move, or was not polled yet
  Time caller_looked_{};                   // when a caller last looked at its time
  std::thread thread_;
  std::atomic<bool> thread_done_{false};
};

}  // namespace hvd::engine
