// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/progress_token.h"

#include <algorithm>

namespace hvd::engine {
namespace {

// For how long the engine's thread lets callers have the token when one was driving the engine as the thread woke up.
constexpr Duration kNap = std::chrono::milliseconds(1);

}  // namespace

bool ProgressToken::TryTake() {
  if (world_->window == nullptr) return local_.try_lock();
  if (world_->window->TryLockToken()) return true;
  // Fenced by its peers: it may move nothing any more, but those who wait here must get their errors.
  if (!world_->window->fenced() || !local_.try_lock()) return false;
  membership_->OnFenced();
  return true;
}

void ProgressToken::Return() {
  // Nobody can fence this rank while it has the window's token, so this returns what was taken.
  world_->window != nullptr && !world_->window->fenced() ? world_->window->UnlockToken() : local_.unlock();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (callers_waiting_.load(std::memory_order_relaxed) > 0 || thread_waiting_.load(std::memory_order_relaxed) ||
      (thread_naps_.load(std::memory_order_relaxed) && work_->unfinished())) {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
}

bool ProgressToken::WaitForChange(std::unique_lock<std::mutex>& lock, Time until) {
  // Peers that declared this rank lost fence it without a word: check again soon.
  const bool condemned = world_->window != nullptr && world_->window->condemned();
  const Time wake = condemned ? std::min(until, world_->loop->Now() + std::chrono::milliseconds(1)) : until;
  if (wake == Time::max()) {
    changed_.wait(lock);
    return true;
  }
  return changed_.wait_until(lock, wake) != std::cv_status::timeout || wake < until;
}

bool ProgressToken::Take(const Operation* op, Time until) {
  if (TryTake()) return true;
  callers_waiting_.fetch_add(1, std::memory_order_seq_cst);
  op_waiters_.fetch_add(1, std::memory_order_seq_cst);
  world_->loop->Wake();  // the engine's thread may be asleep with the token
  std::unique_lock lock(mutex_);
  bool taken = false;
  const bool completes = completer_->OnThisThread();
  // While the engine ends, the thread that ends it has the token, and every operation gets its error.
  while (!op->over.load(std::memory_order_acquire) && !(completes && completer_->has_allocs()) &&
         !(!stopping_.load(std::memory_order_acquire) && (taken = TryTake()))) {
    if (!WaitForChange(lock, until)) break;
  }
  op_waiters_.fetch_sub(1, std::memory_order_relaxed);
  callers_waiting_.fetch_sub(1, std::memory_order_relaxed);
  if (thread_waiting_.load(std::memory_order_relaxed)) changed_.notify_all();
  return taken;
}

bool ProgressToken::TryTakeForThread() { return callers_waiting_.load(std::memory_order_seq_cst) == 0 && TryTake(); }

// A message wakes the engine's thread although a caller takes it; a caller that calls once calls again soon. Work that
// the caller leaves behind ends the nap. Returns whether the thread has the token now.
bool ProgressToken::NapForThread() {
  thread_naps_.store(true, std::memory_order_seq_cst);
  bool taken = false;
  {
    std::unique_lock lock(mutex_);
    taken = TryTakeForThread();  // who returned it before the flag was up has not looked at the flag
    if (!taken && !stopping_.load(std::memory_order_acquire)) WaitForChange(lock, world_->loop->Now() + kNap);
  }
  thread_naps_.store(false, std::memory_order_relaxed);
  return taken || TryTakeForThread();
}

bool ProgressToken::TakeForThread() {
  bool taken = TryTakeForThread() || (!callers_wait() && NapForThread());
  if (taken) return true;
  thread_waiting_.store(true, std::memory_order_seq_cst);
  std::unique_lock lock(mutex_);
  while (!stopping_.load(std::memory_order_acquire) && !(taken = TryTakeForThread())) {
    WaitForChange(lock, Time::max());
  }
  thread_waiting_.store(false, std::memory_order_relaxed);
  return taken;
}

void ProgressToken::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_.store(true, std::memory_order_release);
  changed_.notify_all();
}

}  // namespace hvd::engine
