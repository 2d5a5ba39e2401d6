// SPDX-License-Identifier: Apache-2.0
#include "hvd/loop/epoll_loop.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace hvd::loop {
namespace {

constexpr int kEventsPerIteration = 64;
// Mark the doorbell and the alarm among the events; no watch has these, because epochs start at 1.
constexpr uint64_t kDoorbell = 0;
constexpr uint64_t kAlarm = 1;

uint64_t Tag(int fd, uint32_t epoch) { return (static_cast<uint64_t>(epoch) << 32) | static_cast<uint32_t>(fd); }

}  // namespace

EpollLoop::~EpollLoop() {
  // What handlers and calls hold may unwatch or cancel when it goes: the tables must be whole then.
  const auto watches = std::exchange(watches_, {});
  const auto deferred = std::exchange(deferred_, {});
  close(epoll_fd_);
  close(wake_fd_);
  close(alarm_fd_);
}

Status EpollLoop::Watch(int fd, uint32_t events, FdHandler handler) {
  if (watches_.contains(fd)) return Fail(Code::kAlreadyExists, "descriptor {} is watched already", fd);
  const uint32_t epoch = ++last_epoch_ == 0 ? ++last_epoch_ : last_epoch_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = Tag(fd, epoch);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    return Fail(Code::kInternal, "epoll refuses descriptor {}: {}", fd, std::strerror(errno));
  }
  watches_.emplace(fd, Watched{epoch, std::make_shared<FdHandler>(std::move(handler))});
  return {};
}

Status EpollLoop::Rearm(int fd, uint32_t events) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return Fail(Code::kNotFound, "descriptor {} is not watched", fd);
  epoll_event event{};
  event.events = events;
  event.data.u64 = Tag(fd, found->second.epoch);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) != 0) {
    return Fail(Code::kInternal, "epoll refuses events of descriptor {}: {}", fd, std::strerror(errno));
  }
  return {};
}

void EpollLoop::Unwatch(int fd) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  // The handler may hold the last reference to something whose destructor comes back here: take it out first.
  const std::shared_ptr<FdHandler> handler = std::move(found->second.handler);
  watches_.erase(found);
}

bool EpollLoop::RunOnce(Duration max_wait) {
  // The common case of a rank that polls shared memory.
  if (max_wait == Duration::zero() && deferred_.empty() && timers_.empty() && watches_.empty()) return false;
  bool ran = RunDeferred();
  ran |= RunTimers();
  Duration wait = ran ? Duration::zero() : max_wait;
  if (wait == Duration::zero() && watches_.empty()) return ran;
  if (!deferred_.empty()) wait = Duration::zero();
  if (wait != Duration::zero()) {
    if (const auto next = timers_.next()) {
      const Duration until = std::max(*next - Now(), Duration::zero());
      wait = wait < Duration::zero() ? until : std::min(wait, until);
    }
  }
  const bool waited = wait != Duration::zero();
  ran |= PollDescriptors(wait);
  if (waited) ran |= RunTimers();
  return ran;
}

bool EpollLoop::RunDeferred() {
  if (deferred_.empty()) return false;
  std::vector<std::function<void()>> calls;
  calls.swap(deferred_);
  for (auto& call : calls) {
    call();
    call = nullptr;  // what it held is released in the order of the calls
  }
  // Keeps the allocation where nothing was deferred meanwhile.
  calls.clear();
  if (deferred_.empty()) deferred_.swap(calls);
  return true;
}

bool EpollLoop::RunTimers() {
  if (timers_.empty()) return false;
  return timers_.RunDue(Now());
}

bool EpollLoop::PollDescriptors(Duration wait) {
  std::array<epoll_event, kEventsPerIteration> events;
  const int count = EpollWait(events.data(), kEventsPerIteration, wait);
  bool ran = false;
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[i].data.u64;
    if (tag == kDoorbell || tag == kAlarm) {
      // Who only looks may have looked elsewhere before they rang: it must look again before it sleeps.
      ran |= wait == Duration::zero();
      tag == kDoorbell ? Drain(wake_fd_, &woken_) : Drain(alarm_fd_, &alarm_set_);
      continue;
    }
    const auto found = watches_.find(static_cast<int>(static_cast<uint32_t>(tag)));
    if (found == watches_.end() || found->second.epoch != tag >> 32) continue;
    // Held here, because the handler may unwatch itself.
    const std::shared_ptr<FdHandler> handler = found->second.handler;
    (*handler)(events[i].events);
    ran = true;
  }
  return ran;
}

int EpollLoop::EpollWait(epoll_event* events, int capacity, Duration wait) {
  if (wait > Duration::zero() && has_pwait2_) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
    timespec timeout{};
    timeout.tv_sec = seconds.count();
    timeout.tv_nsec = (wait - seconds).count();
#ifdef SYS_epoll_pwait2
    const long count = syscall(SYS_epoll_pwait2, epoll_fd_, events, capacity, &timeout, nullptr, 0);
    if (count >= 0 || errno == EINTR) return static_cast<int>(count);
#endif
    has_pwait2_ = false;  // an old kernel, or a sandbox that forbids it
  }
  int milliseconds = wait < Duration::zero() ? -1 : 0;
  if (wait > Duration::zero()) {
    // Rounded up: a turn that ends before the timer is due would spin.
    const int64_t rounded = (wait.count() + 999'999) / 1'000'000;
    milliseconds = static_cast<int>(std::min<int64_t>(rounded, std::numeric_limits<int>::max()));
  }
  return epoll_wait(epoll_fd_, events, capacity, milliseconds);
}

void EpollLoop::Wake() {
  if (woken_.exchange(true, std::memory_order_acq_rel)) return;
  const int saved_errno = errno;
  const uint64_t one = 1;
  // EAGAIN means that the counter is full, and then the descriptor is readable anyway.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
  errno = saved_errno;
}

void EpollLoop::WakeIn(Duration delay) {
  if (alarm_set_.exchange(true, std::memory_order_acq_rel)) return;
  const int saved_errno = errno;
  itimerspec when{};
  when.it_value.tv_sec = delay.count() / 1'000'000'000;
  when.it_value.tv_nsec = std::max<int64_t>(delay.count() % 1'000'000'000, 1);  // 0 would take the alarm away
  timerfd_settime(alarm_fd_, 0, &when, nullptr);
  errno = saved_errno;
}

void EpollLoop::Drain(int fd, std::atomic<bool>* pending) {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
  // After the read: a Wake() between the two writes nothing, but this turn is about to return and what that caller
  // stored before is visible to whoever comes after this exchange.
  pending->exchange(false, std::memory_order_acq_rel);
}

Result<std::unique_ptr<Loop>> CreateEpollLoop() {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) return Fail(Code::kResourceExhausted, "epoll_create1: {}", std::strerror(errno));
  const int wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  const int alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  const auto add = [&](int fd, uint64_t tag) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    return fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
  };
  if (!add(wake_fd, kDoorbell) || !add(alarm_fd, kAlarm)) {
    const int error = errno;
    for (const int fd : {epoll_fd, wake_fd, alarm_fd}) {
      if (fd >= 0) close(fd);
    }
    return Fail(Code::kResourceExhausted, "cannot make a doorbell: {}", std::strerror(error));
  }
  return std::unique_ptr<Loop>(std::make_unique<EpollLoop>(epoll_fd, wake_fd, alarm_fd));
}

}  // namespace hvd::loop
