// SPDX-License-Identifier: Apache-2.0
#include "hvd/loop/sim_loop.h"

#include <gtest/gtest.h>

#include <string>

namespace hvd::loop {
namespace {

TEST(SimLoop, TimeMovesOnlyWhenTold) {
  SimClock clock;
  SimLoop loop(&clock);
  const Time start = loop.Now();
  bool ran = false;
  loop.At(start + Seconds(10), [&] { ran = true; });
  EXPECT_FALSE(loop.RunOnce(Seconds(100)));
  clock.Advance(Seconds(9));
  EXPECT_FALSE(loop.RunOnce(Duration(-1)));
  EXPECT_FALSE(ran);
  clock.Advance(Seconds(1));
  EXPECT_TRUE(loop.RunOnce(Duration(0)));
  EXPECT_TRUE(ran);
  EXPECT_EQ(loop.Now(), start + Seconds(10));
}

TEST(SimLoop, ManyLoopsShareOneClockAndRunInAFixedOrder) {
  SimClock clock;
  SimLoop a(&clock);
  SimLoop b(&clock);
  std::string order;
  const Time start = clock.Now();
  b.At(start + Seconds(1), [&] { order += "b1 "; });
  a.At(start + Seconds(2), [&] {
    order += "a2 ";
    b.Defer([&] { order += "b2 "; });
  });
  a.Defer([&] { order += "a0 "; });
  while (clock.TurnAll() || clock.AdvanceToNext()) {
  }
  EXPECT_EQ(order, "a0 b1 a2 b2 ");
  EXPECT_EQ(clock.Now(), start + Seconds(2));
}

TEST(SimLoop, CancelledTimersDoNotMoveTheClock) {
  SimClock clock;
  SimLoop loop(&clock);
  const TimerId id = loop.At(clock.Now() + Seconds(5), [] { FAIL(); });
  loop.Cancel(id);
  EXPECT_FALSE(clock.AdvanceToNext());
}

TEST(SimLoop, ALoopThatIsGoneIsForgotten) {
  SimClock clock;
  {
    SimLoop loop(&clock);
    loop.At(clock.Now(), [] { FAIL(); });
  }
  EXPECT_FALSE(clock.TurnAll());
  EXPECT_FALSE(clock.AdvanceToNext());
}

TEST(SimLoop, DescriptorsAreRefusedAndWakesAreNoted) {
  SimClock clock;
  SimLoop loop(&clock);
  EXPECT_EQ(loop.Watch(0, 1, [](uint32_t) {}).error().code, Code::kUnimplemented);
  EXPECT_FALSE(loop.TakeWake());
  loop.Wake();
  EXPECT_TRUE(loop.TakeWake());
  EXPECT_FALSE(loop.TakeWake());
}

}  // namespace
}  // namespace hvd::loop
