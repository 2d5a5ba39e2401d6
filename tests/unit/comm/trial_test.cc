// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/host/trial.h"

#include <gtest/gtest.h>

namespace hvd::comm::host {
namespace {

using std::chrono::microseconds;

constexpr size_t kBytes = 1 << 20;
constexpr OpKind kOp = OpKind::kAllgather;

// How many of the next `count` operations go the new way, if both ways take so long.
int NewWays(Trial* trial, uint64_t* position, int count, Duration old_way, Duration new_way) {
  int taken = 0;
  for (int i = 0; i < count; ++i) {
    const bool offered = trial->Offers(kOp, kBytes, (*position)++);
    taken += offered;
    trial->Measured(kOp, kBytes, offered, offered ? new_way : old_way);
  }
  return taken;
}

TEST(Trial, TakesBothWaysAndThenTheFasterOne) {
  for (const bool new_is_faster : {false, true}) {
    Trial trial;
    uint64_t position = 0;
    const Duration old_way = microseconds(new_is_faster ? 200 : 100);
    const Duration new_way = microseconds(new_is_faster ? 100 : 200);
    const int first = NewWays(&trial, &position, 40, old_way, new_way);
    EXPECT_GE(first, static_cast<int>(Trial::kTries));
    EXPECT_LE(first, 40 - static_cast<int>(Trial::kTries));
    const int later = NewWays(&trial, &position, 10'000, old_way, new_way);
    EXPECT_NEAR(later, new_is_faster ? 10'000 : 0, 30);
  }
}

TEST(Trial, NoticesWhenTheMachineChanges) {
  Trial trial;
  uint64_t position = 0;
  NewWays(&trial, &position, 100, microseconds(100), microseconds(110));
  // The new way is tried about once in 64 operations: four such times are enough.
  NewWays(&trial, &position, 1000, microseconds(100), microseconds(60));
  EXPECT_GT(NewWays(&trial, &position, 1000, microseconds(100), microseconds(60)), 900);
}

TEST(Trial, APauseInBetweenDoesNotCount) {
  Trial trial;
  uint64_t position = 0;
  NewWays(&trial, &position, 100, microseconds(100), microseconds(60));
  trial.Measured(kOp, kBytes, true, std::chrono::seconds(1));
  EXPECT_GT(NewWays(&trial, &position, 1000, microseconds(100), microseconds(60)), 900);
}

// A machine that is slower for a while is so both ways, although figures of the way not taken are of before.
TEST(Trial, ChangesOfSpeedDoNotChangeTheWayForLong) {
  Trial trial;
  uint64_t position = 0;
  NewWays(&trial, &position, 100, microseconds(100), microseconds(110));
  int taken = 0;
  for (int i = 0; i < 100; ++i) {
    taken += NewWays(&trial, &position, 50, microseconds(300), microseconds(330));
    taken += NewWays(&trial, &position, 50, microseconds(100), microseconds(110));
  }
  EXPECT_LT(taken, 1000);
}

// Large and small ones within a factor of two are no reason to prefer what the small ones went.
TEST(Trial, TimesCountByTheByte) {
  Trial trial;
  for (size_t i = 0; i < Trial::kTries; ++i) {
    trial.Measured(kOp, kBytes * 3 / 2, false, microseconds(150));
    trial.Measured(kOp, kBytes, true, microseconds(110));
  }
  int offered = 0;
  for (uint64_t at = 0; at < 1000; ++at) offered += trial.Offers(kOp, kBytes, at);
  EXPECT_LT(offered, 50);
}

TEST(Trial, SizesAndOperationsHaveTheirOwnFigures) {
  Trial trial;
  uint64_t position = 0;
  NewWays(&trial, &position, 1000, microseconds(100), microseconds(50));
  int others = 0;
  int larger = 0;
  for (uint64_t at = 0; at < 1000; ++at) {
    others += trial.Offers(OpKind::kBroadcast, kBytes, at);
    larger += trial.Offers(kOp, 4 * kBytes, at);
  }
  EXPECT_NEAR(others, 500, 60);
  EXPECT_NEAR(larger, 500, 60);
}

// Every member has figures of its own; what is offered by one alone is never taken.
TEST(Trial, MembersWithoutFiguresTryAtTheSamePositions) {
  const Trial one;
  const Trial other;
  for (uint64_t at = 0; at < 1000; ++at) EXPECT_EQ(one.Offers(kOp, kBytes, at), other.Offers(kOp, kBytes, at));
}

}  // namespace
}  // namespace hvd::comm::host
