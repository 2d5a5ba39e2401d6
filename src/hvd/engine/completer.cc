// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/completer.h"

#include <utility>

#include "hvd/base/signal_mask.h"

namespace hvd::engine {
namespace {

thread_local const Completer* t_completer = nullptr;  // whose thread this is
thread_local bool t_in_alloc = false;

}  // namespace

void Completer::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Completer::Post(Kind kind, Job job) {
  std::lock_guard lock(mutex_);
  (kind == Kind::kAlloc ? allocs_ : dones_).push_back(std::move(job));
  if (kind == Kind::kAlloc) allocs_queued_.fetch_add(1, std::memory_order_release);
  if (!thread_.joinable()) {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { Main(); });
    pthread_setname_np(thread_.native_handle(), "hvd-complete");
  }
  changed_.notify_all();
}

bool Completer::OnThisThread() const { return t_completer == this; }
bool Completer::InJob() { return t_completer != nullptr; }
bool Completer::InAlloc() { return t_in_alloc; }

void Completer::Run(std::unique_lock<std::mutex>& lock, Kind kind) {
  std::deque<Job>& jobs = kind == Kind::kAlloc ? allocs_ : dones_;
  Job job = std::move(jobs.front());
  jobs.pop_front();
  if (kind == Kind::kAlloc) allocs_queued_.fetch_sub(1, std::memory_order_relaxed);
  lock.unlock();
  const bool outer = std::exchange(t_in_alloc, kind == Kind::kAlloc);
  job();
  job = nullptr;  // what it holds goes outside the lock, too
  t_in_alloc = outer;
  lock.lock();
}

void Completer::RunAllocs() {
  std::unique_lock lock(mutex_);
  while (!allocs_.empty()) Run(lock, Kind::kAlloc);
}

void Completer::Main() {
  t_completer = this;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !allocs_.empty() || !dones_.empty(); });
    if (!allocs_.empty()) {
      Run(lock, Kind::kAlloc);
    } else if (!dones_.empty()) {
      Run(lock, Kind::kDone);
    } else {
      return;
    }
  }
}

}  // namespace hvd::engine
