// SPDX-License-Identifier: Apache-2.0
#pragma once
// A reactor: file descriptors, one-shot timers and deferred calls, turned by whoever holds the progress token.
//
// Thread safety: Wake() and WakeIn() may be called from any thread and from a signal handler; everything else needs the
// token, and handlers run inside RunOnce(). No handler may block.

#include <cstdint>
#include <functional>
#include <memory>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"

namespace hvd::loop {

using FdHandler = std::function<void(uint32_t epoll_events)>;
using TimerId = uint64_t;

class Loop : public Clock {
 public:
  // Watches fd for the epoll events given (EPOLLIN, EPOLLOUT, ...; level-triggered). The fd stays the caller's.
  virtual Status Watch(int fd, uint32_t events, FdHandler handler) = 0;
  // Changes the events of a watched fd.
  virtual Status Rearm(int fd, uint32_t events) = 0;
  // After return the handler does not run again, also not for an event already fetched.
  virtual void Unwatch(int fd) = 0;
  // Runs `call` once at or after `when`. A timer never keeps anything awake that is not pending.
  virtual TimerId At(Time when, std::function<void()> call) = 0;
  virtual void Cancel(TimerId id) = 0;
  // Runs `call` in the next turn; for completions that must not run inside the call that causes them.
  virtual void Defer(std::function<void()> call) = 0;
  // Handles what is due: deferred calls, timers, descriptors. Waits for at most `max_wait` (0: not at all; negative:
  // until something happens) when nothing is. Returns whether any handler ran, or one that did not wait took a wake-up.
  virtual bool RunOnce(Duration max_wait) = 0;
  // Makes a RunOnce that waits, or the next one, return at once.
  virtual void Wake() = 0;
  // Does so that much later; of several calls before that, the first one counts.
  virtual void WakeIn(Duration delay) = 0;
  // The descriptor that Wake() writes to (an eventfd); peers in other processes get a copy of it as this loop's
  // doorbell. -1 for a loop without one (a simulated one).
  virtual int wake_fd() const = 0;
  // A descriptor that polls readable while a doorbell or a watched descriptor waits to be handled; for a thread that
  // wants to wait without the token. -1 for a loop without one.
  virtual int poll_fd() const = 0;
  // How many descriptors are watched besides the doorbell: 0 means that polling need not look at sockets.
  virtual int watched() const = 0;
};

// The real thing, on epoll, eventfd and the steady clock.
Result<std::unique_ptr<Loop>> CreateEpollLoop();

}  // namespace hvd::loop
