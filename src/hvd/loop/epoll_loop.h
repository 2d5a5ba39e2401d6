// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loop on epoll, eventfd and the steady clock.
//
// A turn that does not wait enters the kernel only while descriptors are watched: what comes by doorbell lies in shared
// memory, which its reader polls before it sleeps.
//
// Thread safety: see Loop.

#include <sys/epoll.h>

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "hvd/loop/loop.h"
#include "hvd/loop/timer_queue.h"

namespace hvd::loop {

class EpollLoop final : public Loop {
 public:
  // Takes the descriptors.
  EpollLoop(int epoll_fd, int wake_fd, int alarm_fd) : epoll_fd_(epoll_fd), wake_fd_(wake_fd), alarm_fd_(alarm_fd) {}
  ~EpollLoop() override;
  EpollLoop(const EpollLoop&) = delete;
  EpollLoop& operator=(const EpollLoop&) = delete;

  Time Now() const override { return std::chrono::steady_clock::now(); }
  Status Watch(int fd, uint32_t events, FdHandler handler) override;
  Status Rearm(int fd, uint32_t events) override;
  void Unwatch(int fd) override;
  TimerId At(Time when, std::function<void()> call) override { return timers_.Add(when, std::move(call)); }
  void Cancel(TimerId id) override { timers_.Cancel(id); }
  void Defer(std::function<void()> call) override { deferred_.push_back(std::move(call)); }
  bool RunOnce(Duration max_wait) override;
  void Wake() override;
  void WakeIn(Duration delay) override;
  int wake_fd() const override { return wake_fd_; }
  int poll_fd() const override { return epoll_fd_; }
  int watched() const override { return static_cast<int>(watches_.size()); }

 private:
  struct Watched {
    // Tells this watch from an earlier one of the same descriptor, whose event may have been fetched already.
    uint32_t epoch;
    std::shared_ptr<FdHandler> handler;
  };

  bool RunDeferred();
  bool RunTimers();
  bool PollDescriptors(Duration wait);
  int EpollWait(epoll_event* events, int capacity, Duration wait);
  // What is read from the descriptor has been seen.
  static void Drain(int fd, std::atomic<bool>* pending);

  const int epoll_fd_;
  const int wake_fd_;
  const int alarm_fd_;  // a timer, for WakeIn
  // A Wake() has been written and not yet been seen; saves the system call of further ones.
  std::atomic<bool> woken_{false};
  std::atomic<bool> alarm_set_{false};  // likewise
  bool has_pwait2_ = true;
  uint32_t last_epoch_ = 0;
  std::unordered_map<int, Watched> watches_;
  TimerQueue timers_;
  std::vector<std::function<void()>> deferred_;
};

}  // namespace hvd::loop
