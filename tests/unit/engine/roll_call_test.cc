// SPDX-License-Identifier: Apache-2.0
// Ranks of one machine know who has not come.
#include "hvd/engine/roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

namespace hvd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Launcher RankOf(int rank, int local_size = 3) {
  Launcher launcher;
  launcher.kind = LauncherKind::kOpenMpi;
  launcher.rank = rank;
  launcher.size = 3;
  launcher.local_rank = rank;
  launcher.local_size = local_size;
  launcher.job = fmt::format("roll-call-test-{}", ::getpid());
  return launcher;
}

TEST(RollCall, NamesThoseWhoHaveNotCome) {
  const RollCall first(RankOf(0));
  auto second = std::make_unique<RollCall>(RankOf(1));
  EXPECT_THAT(first.Absent(), ElementsAre(2));
  EXPECT_THAT(second->Absent(), ElementsAre(2));
  EXPECT_THAT(first.Absent(std::vector{0, 1}), IsEmpty());
  second.reset();
  EXPECT_THAT(first.Absent(), ElementsAre(1, 2));
}

TEST(RollCall, WhoStaysIsHereToTheEnd) {
  RollCall(RankOf(2)).Stay();
  EXPECT_THAT(RollCall(RankOf(0)).Absent(), ElementsAre(1));
  EXPECT_THAT(RollCall(RankOf(2)).Absent(), ElementsAre(0, 1)) << "it comes again";
}

TEST(RollCall, KnowsNothingOfOtherMachines) { EXPECT_THAT(RollCall(RankOf(0, 2)).Absent(), IsEmpty()); }

}  // namespace
}  // namespace hvd::engine
