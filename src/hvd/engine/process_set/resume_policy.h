// SPDX-License-Identifier: Apache-2.0
#pragma once
// When the sequencer lets members announce by mark message again. Every epoch costs a log entry and, at its end, a mark
// of every member to every other; so it shall be long. Where large operations come between small ones, or several are
// in flight and run as one, the log serves better.
//
// Pure; one member decides, and the log tells the others.

#include <algorithm>
#include <cstdint>

namespace hvd::engine {

class ResumePolicy {
 public:
  // Operations in a row before the first time, and before any.
  explicit ResumePolicy(uint64_t fewest = 8, uint64_t most = 1024) : fewest_(fewest), most_(most) {}

  // The log executes an operation that could have been announced, with few in flight; or something else.
  void Executed(bool announceable) { in_a_row_ = announceable ? in_a_row_ + 1 : 0; }
  bool due() const { return in_a_row_ >= needed_; }
  // An epoch ended in which so many operations were agreed on.
  void Closed(uint64_t agreed) {
    needed_ = agreed >= kLong ? fewest_ : std::min(needed_ * 2, most_);
    in_a_row_ = 0;
  }

 private:
  static constexpr uint64_t kLong = 32;  // an epoch that was worth it

  uint64_t fewest_;
  uint64_t most_;
  uint64_t needed_ = fewest_;
  uint64_t in_a_row_ = 0;
};

}  // namespace hvd::engine
