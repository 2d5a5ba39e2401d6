// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/clock_offset.h"

namespace hvd::engine {

std::optional<uint64_t> ClockOffset::Ask(int64_t monotonic_ns) {
  if (known()) return std::nullopt;
  asking_ = true;
  asked_at_ = monotonic_ns;
  return static_cast<uint64_t>(monotonic_ns);
}

bool ClockOffset::OnAnswer(uint64_t number, int64_t their_wall_ns, int64_t monotonic_ns, int64_t wall_ns) {
  if (!asking_ || number != static_cast<uint64_t>(asked_at_)) return false;
  asking_ = false;
  const int64_t round_trip = monotonic_ns - asked_at_;
  if (answers_++ == 0 || round_trip < shortest_) {
    shortest_ = round_trip;
    // Now it is half a round trip later there, too.
    offset_ = their_wall_ns + round_trip / 2 - wall_ns;
  }
  return true;
}

}  // namespace hvd::engine
