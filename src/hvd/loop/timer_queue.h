// SPDX-License-Identifier: Apache-2.0
#pragma once
// One-shot timers in order of time, then of creation.
//
// Thread safety: none; belongs to one loop.

#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "hvd/base/clock.h"
#include "hvd/loop/loop.h"

namespace hvd::loop {

class TimerQueue {
 public:
  TimerId Add(Time when, std::function<void()> call);
  // Unknown ids (a timer that ran already) are ignored.
  void Cancel(TimerId id);
  bool empty() const { return timers_.empty(); }
  std::optional<Time> next() const;
  // Runs what is due at `now`. Timers added by the calls themselves wait for the next run, so that a timer which sets
  // itself again for "now" cannot hold the loop. Returns whether any ran.
  bool RunDue(Time now);

 private:
  using Key = std::pair<Time, TimerId>;

  std::map<Key, std::function<void()>> timers_;
  std::unordered_map<TimerId, Time> when_;
  TimerId last_id_ = 0;
};

}  // namespace hvd::loop
