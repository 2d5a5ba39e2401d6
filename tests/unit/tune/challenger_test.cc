// SPDX-License-Identifier: Apache-2.0
// Tuning that goes on, with scores that are functions of the values.
#include "hvd/tune/challenger.h"

#include <gtest/gtest.h>

#include <set>

#include "hvd/tune/parameters.h"

namespace hvd::tune {
namespace {

TEST(Challenger, TriesWhatLiesBesideTheChoiceInTurns) {
  const Point choice{128 << 20, 100, 16 << 10, 1000};
  Challenger challenger(AxesFor({}), choice);
  std::set<Point> tried;
  for (int round = 0; round < 8; ++round) {
    ASSERT_TRUE(challenger.Begin());
    int samples = 0;
    for (; !challenger.resting(); ++samples) {
      if (challenger.point() != choice) tried.insert(challenger.point());
      challenger.Report(1);
    }
    EXPECT_EQ(samples, 4);
    EXPECT_EQ(challenger.point(), choice);
  }
  EXPECT_EQ(tried, (std::set<Point>{{64 << 20, 100, 16 << 10, 1000},
                                    {128 << 20, 50, 16 << 10, 1000},
                                    {128 << 20, 200, 16 << 10, 1000},
                                    {128 << 20, 100, 4 << 10, 1000},
                                    {128 << 20, 100, 64 << 10, 1000},
                                    {128 << 20, 100, 16 << 10, 100}}));
}

TEST(Challenger, OnlyWhoWinsTwiceStays) {
  const Point choice{128 << 20, 100, 64 << 10, 1000};
  for (const int wins : {1, 2}) {
    Challenger challenger(AxesFor({}), choice);
    ASSERT_TRUE(challenger.Begin());
    int samples = 0;
    for (; !challenger.resting(); ++samples) {
      challenger.Report(challenger.point() != choice && samples < 4 * wins ? 2 : 1);
    }
    EXPECT_EQ(samples, 8);
    EXPECT_EQ(challenger.won(), wins == 2);
    EXPECT_EQ(challenger.choice() != choice, wins == 2);
    EXPECT_EQ(challenger.point(), challenger.choice());
  }
}

TEST(Challenger, WhereAllIsFixedThereIsNothingToTry) {
  Challenger challenger({Axis{1}, Axis{2}}, {1, 2});
  EXPECT_FALSE(challenger.Begin());
  EXPECT_TRUE(challenger.resting());
}

}  // namespace
}  // namespace hvd::tune
