// SPDX-License-Identifier: Apache-2.0
#pragma once
// The completion thread: runs code that is not ours, in order. Such code may wait for Python's lock or for minutes; the
// loop does not notice. Started at the first job.
//
// done     a completion callback: what it waits for may need memory from an alloc job, so its wait runs those.
// alloc    a callback that gives memory; an operation cannot go on without it, so these come first.
//
// Thread safety: all functions, any thread; Stop from one that runs no job.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace hvd::engine {

class Completer {
 public:
  using Job = std::function<void()>;
  enum class Kind { kDone, kAlloc };

  ~Completer() { Stop(); }
  void Post(Kind kind, Job job);
  // Runs what is queued, then ends the thread.
  void Stop();

  bool OnThisThread() const;
  // Whether the calling thread is inside a job of any completer, and whether that is an alloc job.
  static bool InJob();
  static bool InAlloc();

  // For a job that waits: whether alloc jobs are queued, and running them here and now.
  bool has_allocs() const { return allocs_queued_.load(std::memory_order_acquire) > 0; }
  void RunAllocs();

 private:
  void Main();
  void Run(std::unique_lock<std::mutex>& lock, Kind kind);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> dones_;
  std::deque<Job> allocs_;
  std::atomic<int> allocs_queued_{0};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace hvd::engine
