// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/by_position.h"

#include <gtest/gtest.h>

namespace hvd::comm {
namespace {

TEST(ByPosition, EveryPositionKeepsItsValue) {
  ByPosition<int> value(1);
  value.Set(10, 0, 2);
  value.Set(20, 5, 3);
  value.Set(20, 5, 4);  // nothing happened in between
  EXPECT_EQ(value.At(0), 1);
  EXPECT_EQ(value.At(9), 1);
  EXPECT_EQ(value.At(10), 2);
  EXPECT_EQ(value.At(19), 2);
  EXPECT_EQ(value.At(20), 4);
  EXPECT_EQ(value.latest(), 4);
  EXPECT_EQ(value.kept(), 2u);
  value.Set(30, 10, 5);
  EXPECT_EQ(value.kept(), 2u) << "nobody asks for the first any more";
  EXPECT_EQ(value.At(10), 2);
  EXPECT_EQ(value.At(29), 4);
  value.Set(40, 40, 6);
  EXPECT_EQ(value.kept(), 0u);
  EXPECT_EQ(value.At(40), 6);
}

}  // namespace
}  // namespace hvd::comm
