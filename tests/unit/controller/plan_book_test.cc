// SPDX-License-Identifier: Apache-2.0
// The plans that a member knows are those of the log.
#include "hvd/controller/plan_book.h"

#include <gtest/gtest.h>

#include "hvd/controller/sequencer.h"
#include "tests/unit/controller/requests.h"

namespace hvd::controller {
namespace {

TEST(PlanBook, FollowsTheLog) {
  PlanBook book;
  Sequencer sequencer(Options(1, 1));
  sequencer.OnRequest(0, {"a", Allreduce()});
  for (const auto& entry : sequencer.TakeLog()) book.Apply(entry);
  const PlanPtr a = book.FindByName("a");
  ASSERT_TRUE(a);
  EXPECT_EQ(book.Match({"a", Allreduce()}), a);
  EXPECT_FALSE(book.Match({"a", Allreduce({5})}));
  EXPECT_EQ(book.FindByUid(a->uid), a);
  book.Drop(a->uid);  // cached: stays
  EXPECT_EQ(book.size(), 1u);
  sequencer.OnRequest(0, {"b", Allreduce()});
  for (const auto& entry : sequencer.TakeLog()) book.Apply(entry);
  EXPECT_FALSE(book.FindByName("a"));
  EXPECT_FALSE(book.FindByUid(a->uid));
  EXPECT_EQ(a->name, "a");  // still held
  EXPECT_TRUE(book.FindByName("b"));
}

TEST(PlanBook, PlansThatAreNotCachedLiveUntilDropped) {
  PlanBook book;
  Sequencer sequencer(Options(1, 0));
  sequencer.OnRequest(0, {"a", Allreduce()});
  const auto log = sequencer.TakeLog();
  for (const auto& entry : log) book.Apply(entry);
  EXPECT_FALSE(book.FindByName("a"));
  EXPECT_TRUE(book.FindByUid(log[0].plan.uid));
  book.Drop(log[0].plan.uid);
  EXPECT_EQ(book.size(), 0u);
}

}  // namespace
}  // namespace hvd::controller
