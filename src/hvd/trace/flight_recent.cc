// SPDX-License-Identifier: Apache-2.0
// Questions to the flight recorder while the job runs. See Read() in flight_dump.cc for the order of the loads.
#include <algorithm>
#include <cstring>

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
  constexpr auto kOrder = std::memory_order_acquire;
  const TickScale::Pair now = ticks_.Read();
  const auto ago = [&](uint64_t ticks) { return std::max<int64_t>(now.nanos - ticks_.ToNanos(ticks, now), 0); };
  std::vector<FlightGlimpse> recent;
  const uint64_t end = next_.load(kOrder);
  for (uint64_t back = 1; back <= std::min<uint64_t>(end, mask_ + 1) && recent.size() < most; ++back) {
    const Id id = end - back;
    const Entry& entry = entries_[id & mask_];
    if (entry.seq.load(kOrder) != 2 * id + 2) continue;
    const uint64_t state = entry.state.load(kOrder);
    FlightGlimpse glimpse;
    glimpse.state = static_cast<FlightState>(state & 255);
    glimpse.submitted_ns_ago = ago(entry.times[0].load(kOrder));
    if (glimpse.state >= FlightState::kDone) glimpse.ended_ns_ago = ago(entry.times[kTimes - 1].load(kOrder));
    if (entry.seq.load(std::memory_order_relaxed) != 2 * id + 2) continue;
    const Known known = state >> 8;
    const Description& description = descriptions_[known & (2 * mask_ + 1)];
    if (description.seq.load(kOrder) != 2 * known + 2) continue;
    const uint64_t what = description.what.load(kOrder);
    glimpse.set = static_cast<int32_t>(what);
    glimpse.op = static_cast<OpKind>(what >> 32 & 255);
    std::array<uint64_t, kNameBytes / 8> words;
    for (size_t i = 0; i < words.size(); ++i) words[i] = description.name[i].load(kOrder);
    const size_t length = std::min<size_t>(description.more.load(kOrder) >> 32, kNameBytes);
    if (description.seq.load(std::memory_order_relaxed) != 2 * known + 2) continue;
    glimpse.name.resize(length);
    std::memcpy(glimpse.name.data(), words.data(), length);
    recent.push_back(std::move(glimpse));
  }
  return recent;
}

}  // namespace hvd::trace
