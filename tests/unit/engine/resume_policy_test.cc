// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/process_set/resume_policy.h"

#include <gtest/gtest.h>

namespace hvd::engine {
namespace {

int UntilDue(ResumePolicy* policy) {
  int executed = 0;
  for (; !policy->due(); ++executed) policy->Executed(true);
  return executed;
}

TEST(ResumePolicy, WantsOperationsInARow) {
  ResumePolicy policy;
  for (int i = 0; i < 100; ++i) {
    policy.Executed(i % 8 != 7);
    EXPECT_FALSE(policy.due());
  }
  EXPECT_LE(UntilDue(&policy), 8);
}

TEST(ResumePolicy, WantsMoreAfterEachShortEpochAndFewAfterALongOne) {
  ResumePolicy policy(8, 64);
  EXPECT_EQ(UntilDue(&policy), 8);
  for (const int more : {16, 32, 64, 64}) {
    policy.Closed(3);
    EXPECT_EQ(UntilDue(&policy), more);
  }
  policy.Closed(1000);
  EXPECT_EQ(UntilDue(&policy), 8);
}

}  // namespace
}  // namespace hvd::engine
