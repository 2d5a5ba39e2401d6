// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ArrivalsTest, NamesWhoIsAwaitedOnceSomebodyWaits) {
  int changes = 0;
  Arrivals arrivals([&] { ++changes; });
  EXPECT_THAT(arrivals.Awaited(3), IsEmpty()) << "a program that never calls hvd.init()";
  for (const char* key : {"hvd/0/job", "hvd/at/x", "hvd/at-0-1/0", "hvd/0/ab/card/0"}) arrivals.OnSet(key);
  EXPECT_THAT(arrivals.Awaited(3), IsEmpty());
  arrivals.OnSet("hvd/at/1");
  arrivals.OnSet("hvd/at/1");
  EXPECT_THAT(arrivals.Awaited(3), ElementsAre(0, 2));
  EXPECT_EQ(changes, 1);
  arrivals.OnAll();
  EXPECT_TRUE(arrivals.all());
  EXPECT_THAT(arrivals.Awaited(3), IsEmpty());
  EXPECT_EQ(changes, 2);
}

}  // namespace
}  // namespace hvd::launch
