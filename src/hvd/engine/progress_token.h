// SPDX-License-Identifier: Apache-2.0
#pragma once
// The progress token: the right of one thread of this rank to drive the engine and to store into peers' memory.
//
// A waiting caller takes it first, because its operation then ends on its own thread; otherwise the engine's thread
// does. In a job with shared memory the token is a robust mutex there, so that peers can tell when its holder died, and
// can take it away from a rank that they declared lost.
//
// Thread safety: all functions, any thread.
// Lifetime: what the constructor is given outlives it.

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "hvd/base/clock.h"
#include "hvd/engine/bootstrap/world.h"
#include "hvd/engine/completer.h"
#include "hvd/engine/engine_work.h"
#include "hvd/engine/membership/membership.h"
#include "hvd/engine/operation.h"

namespace hvd::engine {

class ProgressToken {
 public:
  ProgressToken(const World* world, Membership* membership, Completer* completer, const EngineWork* work)
      : world_(world), membership_(membership), completer_(completer), work_(work) {}

  // Takes the token if nobody holds it.
  bool TryTake();
  void Return();
  // For a caller that waits for `op`. False: the operation is over, an alloc function waits for this thread, or the
  // time has come.
  bool Take(const Operation* op, Time until);
  // For the engine's thread. False: the engine stops.
  bool TakeForThread();

  // Wakes callers that wait for an operation.
  void NotifyWaiters() {
    if (op_waiters_.load(std::memory_order_seq_cst) == 0) return;
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  bool callers_wait() const { return callers_waiting_.load(std::memory_order_relaxed) > 0; }
  bool has_waiters() const { return op_waiters_.load(std::memory_order_relaxed) > 0; }

  // For a thread that ends the engine, from here until Yield: the engine's thread leaves the token to it.
  void Claim() { callers_waiting_.fetch_add(1, std::memory_order_seq_cst); }
  void Yield() { callers_waiting_.fetch_sub(1, std::memory_order_relaxed); }
  // From now on no thread waits for the token.
  void Stop();
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }

 private:
  // Waits until something changed. False: the time has come.
  bool WaitForChange(std::unique_lock<std::mutex>& lock, Time until);
  bool TryTakeForThread();
  bool NapForThread();

  const World* const world_;
  Membership* const membership_;
  const Completer* const completer_;
  const EngineWork* const work_;

  std::mutex local_;  // the token of a job without shared memory, and of a rank that is fenced
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> callers_waiting_{0};
  std::atomic<int> op_waiters_{0};
  std::atomic<bool> thread_waiting_{false};
  std::atomic<bool> thread_naps_{false};
  std::atomic<bool> stopping_{false};
};

}  // namespace hvd::engine
