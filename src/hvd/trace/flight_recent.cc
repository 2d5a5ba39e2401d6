// SPDX-License-Identifier: Apache-2.0
// Questions to the flight recorder while the job runs. See Read() in flight_dump.cc for the order of the loads.
#include <algorithm>

#include "hvd/trace/flight.h"

namespace hvd::trace {

int64_t FlightRecorder::AgeOf(Id id) const {
  if (id == kNone) return -1;
  const Entry& entry = entries_[id & mask_];
  if (entry.seq.load(std::memory_order_acquire) != 2 * id + 2) return -1;
  const uint64_t submitted = entry.times[0].load(std::memory_order_acquire);
  if (entry.seq.load(std::memory_order_relaxed) != 2 * id + 2) return -1;
  const TickScale::Pair now = ticks_.Read();
  return std::max<int64_t>(now.nanos - ticks_.ToNanos(submitted, now), 0);
}

std::vector<FlightGlimpse> FlightRecorder::Recent(size_t most) const {
  const TickScale::Pair now = ticks_.Read();
  const auto ago = [&](uint64_t ticks) { return std::max<int64_t>(now.nanos - ticks_.ToNanos(ticks, now), 0); };
  std::vector<FlightGlimpse> recent;
  const uint64_t end = next_.load(std::memory_order_acquire);
  for (uint64_t back = 1; back <= std::min<uint64_t>(end, mask_ + 1) && recent.size() < most; ++back) {
    const Id id = end - back;
    Copy copy;
    if (!Read(id, &copy)) continue;
    FlightGlimpse glimpse;
    glimpse.state = static_cast<FlightState>(copy.state & 255);
    glimpse.set = static_cast<int32_t>(copy.what);
    glimpse.op = static_cast<OpKind>(copy.what >> 32 & 255);
    glimpse.submitted_ns_ago = ago(copy.times[0]);
    if (glimpse.state >= FlightState::kDone) glimpse.ended_ns_ago = ago(copy.times[kTimes - 1]);
    glimpse.name = copy.name_text();
    recent.push_back(std::move(glimpse));
  }
  return recent;
}

}  // namespace hvd::trace
