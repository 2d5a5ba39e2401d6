// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/submission_batcher.h"

#include <gtest/gtest.h>

namespace hvd::engine {
namespace {

using std::chrono::microseconds;

constexpr Time kStart{std::chrono::seconds(1)};

// Submits `count` operations in quick succession, from `*now` on. How many were to be batched.
int SubmitMany(SubmissionBatcher* batcher, int count, Time* now) {
  int batched = 0;
  for (int i = 0; i < count; ++i, *now += microseconds(1)) batched += batcher->ShouldBatch(*now) ? 1 : 0;
  return batched;
}

TEST(SubmissionBatcher, BatchesOperationsThatFollowEachOther) {
  SubmissionBatcher batcher;
  Time now = kStart;
  EXPECT_EQ(SubmitMany(&batcher, 2, &now), 0);
  EXPECT_EQ(SubmitMany(&batcher, 10, &now), 10);
}

TEST(SubmissionBatcher, BatchesNoneAfterAPause) {
  SubmissionBatcher batcher;
  Time now = kStart;
  SubmitMany(&batcher, 10, &now);
  now += std::chrono::milliseconds(1);
  EXPECT_EQ(SubmitMany(&batcher, 2, &now), 0);
}

TEST(SubmissionBatcher, BatchesNoneAfterAWait) {
  SubmissionBatcher batcher;
  Time now = kStart;
  SubmitMany(&batcher, 10, &now);
  batcher.NoteWait();
  EXPECT_EQ(SubmitMany(&batcher, 1, &now), 0);
}

TEST(SubmissionBatcher, GoesOnWhileOperationsFindCompany) {
  SubmissionBatcher batcher;
  Time now = kStart;
  SubmitMany(&batcher, 4, &now);
  batcher.Hold();
  batcher.Hold();
  EXPECT_TRUE(batcher.holding());
  batcher.Flush();
  EXPECT_FALSE(batcher.holding());
  EXPECT_EQ(SubmitMany(&batcher, 3, &now), 3);
}

TEST(SubmissionBatcher, RestsAfterTwoThatFoundNoCompany) {
  SubmissionBatcher batcher;
  Time now = kStart;
  SubmitMany(&batcher, 4, &now);
  batcher.Hold();
  batcher.Flush();  // the last one of many
  EXPECT_EQ(SubmitMany(&batcher, 1, &now), 1);
  batcher.Hold();
  batcher.Flush();
  EXPECT_EQ(SubmitMany(&batcher, 64, &now), 0);
  SubmitMany(&batcher, 2, &now);
  EXPECT_EQ(SubmitMany(&batcher, 1, &now), 1);
}

}  // namespace
}  // namespace hvd::engine
