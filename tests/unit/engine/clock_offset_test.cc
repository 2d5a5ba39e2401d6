// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/clock_offset.h"

#include <gtest/gtest.h>

namespace hvd::engine {
namespace {

constexpr int64_t kAhead = 5'000'000'000;  // the other clock, on a monotonic clock that is this host's wall clock, too

// A question at `now` that travels `there` and `back`; the time afterwards.
int64_t Exchange(ClockOffset* offset, int64_t now, int64_t there, int64_t back) {
  const auto number = offset->Ask(now);
  EXPECT_TRUE(number.has_value());
  const int64_t arrival = now + there + back;
  EXPECT_TRUE(offset->OnAnswer(*number, now + there + kAhead, arrival, arrival));
  return arrival;
}

TEST(ClockOffset, TheFastestAnswerCounts) {
  ClockOffset offset;
  int64_t now = 1000;
  for (int i = 0; i < ClockOffset::kSamples; ++i) {
    EXPECT_FALSE(offset.known());
    // The slow ones are slow on one way, and so misleading.
    now = Exchange(&offset, now, i == 3 ? 50'000 : 10'000'000, 50'000);
  }
  EXPECT_TRUE(offset.known());
  EXPECT_EQ(offset.nanos(), kAhead);
  EXPECT_FALSE(offset.Ask(now).has_value());
}

TEST(ClockOffset, OtherAnswersAreIgnored) {
  ClockOffset offset;
  EXPECT_FALSE(offset.OnAnswer(0, 1, 2, 3));  // never asked
  const auto number = offset.Ask(1000);
  EXPECT_FALSE(offset.OnAnswer(1, 1, 2, 3));  // a ping of somebody else
  EXPECT_TRUE(offset.OnAnswer(*number, 5000, 3000, 3000));
  EXPECT_FALSE(offset.OnAnswer(*number, 5000, 3000, 3000));  // twice
  EXPECT_EQ(offset.nanos(), 3000);
}

}  // namespace
}  // namespace hvd::engine
