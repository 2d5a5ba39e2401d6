// SPDX-License-Identifier: Apache-2.0
#pragma once
// How far this host's wall clock is from rank 0's, for timelines of several hosts: a few pings, of whose answers the
// fastest counts. The answer was written somewhere between question and arrival, so half the round trip is the most
// that the offset can be wrong.
//
// Pure: no messages, times are passed in. Thread safety: none; call with the progress token.

#include <cstdint>
#include <optional>

namespace hvd::engine {

class ClockOffset {
 public:
  static constexpr int kSamples = 8;

  // The number of the next ping, which is sent now; nothing: enough is known.
  std::optional<uint64_t> Ask(int64_t monotonic_ns);
  // An answer arrived. False: it is none to the last question.
  bool OnAnswer(uint64_t number, int64_t their_wall_ns, int64_t monotonic_ns, int64_t wall_ns);

  bool known() const { return answers_ == kSamples; }
  // What must be added to this host's wall clock to get the other's.
  int64_t nanos() const { return offset_; }

 private:
  int64_t asked_at_ = 0;
  bool asking_ = false;
  int answers_ = 0;
  int64_t shortest_ = 0;
  int64_t offset_ = 0;
};

}  // namespace hvd::engine
