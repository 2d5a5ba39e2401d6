// SPDX-License-Identifier: Apache-2.0
#include "hvd/loop/timer_queue.h"

namespace hvd::loop {

TimerId TimerQueue::Add(Time when, std::function<void()> call) {
  const TimerId id = ++last_id_;
  timers_.emplace(Key{when, id}, std::move(call));
  when_.emplace(id, when);
  return id;
}

void TimerQueue::Cancel(TimerId id) {
  const auto found = when_.find(id);
  if (found == when_.end()) return;
  timers_.erase(Key{found->second, id});
  when_.erase(found);
}

std::optional<Time> TimerQueue::next() const {
  if (timers_.empty()) return std::nullopt;
  return timers_.begin()->first.first;
}

bool TimerQueue::RunDue(Time now) {
  const TimerId newest = last_id_;
  bool ran = false;
  // A call may add and cancel timers, so the map is looked at afresh each time.
  auto due = timers_.begin();
  while (due != timers_.end() && due->first.first <= now) {
    if (due->first.second > newest) {
      ++due;
      continue;
    }
    const std::function<void()> call = std::move(due->second);
    when_.erase(due->first.second);
    timers_.erase(due);
    call();
    ran = true;
    due = timers_.begin();
  }
  return ran;
}

}  // namespace hvd::loop
