// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/builtin/variant_selector.h"

#include <gtest/gtest.h>

namespace hvd::comm::builtin {
namespace {

using std::chrono::microseconds;

constexpr size_t kBytes = 1 << 20;
constexpr OpKind kOp = OpKind::kAllgather;

// How many of the next `count` operations go the new way, if both ways take so long.
int CountNewVariants(VariantSelector* selector, uint64_t* position, int count, Duration old_variant,
                     Duration new_variant) {
  int taken = 0;
  for (int i = 0; i < count; ++i) {
    const bool offered = selector->Offers(kOp, kBytes, (*position)++);
    taken += offered;
    selector->Measured(kOp, kBytes, offered, offered ? new_variant : old_variant);
  }
  return taken;
}

TEST(VariantSelector, TakesBothWaysAndThenTheFasterOne) {
  for (const bool new_is_faster : {false, true}) {
    VariantSelector selector;
    uint64_t position = 0;
    const Duration old_variant = microseconds(new_is_faster ? 200 : 100);
    const Duration new_variant = microseconds(new_is_faster ? 100 : 200);
    const int first = CountNewVariants(&selector, &position, 40, old_variant, new_variant);
    EXPECT_GE(first, static_cast<int>(VariantSelector::kTries));
    EXPECT_LE(first, 40 - static_cast<int>(VariantSelector::kTries));
    const int later = CountNewVariants(&selector, &position, 10'000, old_variant, new_variant);
    EXPECT_NEAR(later, new_is_faster ? 10'000 : 0, 30);
  }
}

TEST(VariantSelector, NoticesWhenTheMachineChanges) {
  VariantSelector selector;
  uint64_t position = 0;
  CountNewVariants(&selector, &position, 100, microseconds(100), microseconds(110));
  // The new way is tried about once in 64 operations: four such times are enough.
  CountNewVariants(&selector, &position, 1000, microseconds(100), microseconds(60));
  EXPECT_GT(CountNewVariants(&selector, &position, 1000, microseconds(100), microseconds(60)), 900);
}

TEST(VariantSelector, APauseInBetweenDoesNotCount) {
  VariantSelector selector;
  uint64_t position = 0;
  CountNewVariants(&selector, &position, 100, microseconds(100), microseconds(60));
  selector.Measured(kOp, kBytes, true, std::chrono::seconds(1));
  EXPECT_GT(CountNewVariants(&selector, &position, 1000, microseconds(100), microseconds(60)), 900);
}

// A machine that is slower for a while is so both ways, although figures of the way not taken are of before.
TEST(VariantSelector, ChangesOfSpeedDoNotChangeTheWayForLong) {
  VariantSelector selector;
  uint64_t position = 0;
  CountNewVariants(&selector, &position, 100, microseconds(100), microseconds(110));
  int taken = 0;
  for (int i = 0; i < 100; ++i) {
    taken += CountNewVariants(&selector, &position, 50, microseconds(300), microseconds(330));
    taken += CountNewVariants(&selector, &position, 50, microseconds(100), microseconds(110));
  }
  EXPECT_LT(taken, 1000);
}

// Large and small ones within a factor of two are no reason to prefer what the small ones went.
TEST(VariantSelector, TimesCountByTheByte) {
  VariantSelector selector;
  for (size_t i = 0; i < VariantSelector::kTries; ++i) {
    selector.Measured(kOp, kBytes * 3 / 2, false, microseconds(150));
    selector.Measured(kOp, kBytes, true, microseconds(110));
  }
  int offered = 0;
  for (uint64_t at = 0; at < 1000; ++at) offered += selector.Offers(kOp, kBytes, at);
  EXPECT_LT(offered, 50);
}

TEST(VariantSelector, SizesAndOperationsHaveTheirOwnFigures) {
  VariantSelector selector;
  uint64_t position = 0;
  CountNewVariants(&selector, &position, 1000, microseconds(100), microseconds(50));
  int others = 0;
  int larger = 0;
  for (uint64_t at = 0; at < 1000; ++at) {
    others += selector.Offers(OpKind::kBroadcast, kBytes, at);
    larger += selector.Offers(kOp, 4 * kBytes, at);
  }
  EXPECT_NEAR(others, 500, 60);
  EXPECT_NEAR(larger, 500, 60);
}

// Every member has figures of its own; what is offered by one alone is never taken.
TEST(VariantSelector, MembersWithoutFiguresTryAtTheSamePositions) {
  const VariantSelector one;
  const VariantSelector other;
  for (uint64_t at = 0; at < 1000; ++at) EXPECT_EQ(one.Offers(kOp, kBytes, at), other.Offers(kOp, kBytes, at));
}

}  // namespace
}  // namespace hvd::comm::builtin
