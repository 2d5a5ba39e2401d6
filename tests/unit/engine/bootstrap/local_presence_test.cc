// SPDX-License-Identifier: Apache-2.0
// Ranks of one machine know who has not come.
#include "hvd/engine/bootstrap/local_presence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

#include "hvd/net/socket.h"

namespace hvd::engine::bootstrap {
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

TEST(LocalPresence, NamesThoseWhoHaveNotCome) {
  const LocalPresence first(RankOf(0));
  auto second = std::make_unique<LocalPresence>(RankOf(1));
  EXPECT_THAT(first.Absent(), ElementsAre(2));
  EXPECT_THAT(second->Absent(), ElementsAre(2));
  EXPECT_THAT(first.Absent(std::vector{0, 1}), IsEmpty());
  second.reset();
  EXPECT_THAT(first.Absent(), ElementsAre(1, 2));
}

TEST(LocalPresence, WhoStaysIsHereToTheEnd) {
  LocalPresence(RankOf(2)).Stay();
  EXPECT_THAT(LocalPresence(RankOf(0)).Absent(), ElementsAre(1));
  EXPECT_THAT(LocalPresence(RankOf(2)).Absent(), ElementsAre(0, 1)) << "it comes again";
}

TEST(LocalPresence, KnowsNothingOfOtherMachines) { EXPECT_THAT(LocalPresence(RankOf(0, 2)).Absent(), IsEmpty()); }

TEST(LocalPresence, AnotherUserIsNotARank) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const LocalPresence first(RankOf(0));
  const auto place = net::Address::UnixAbstract(fmt::format("hvd-here-0-roll-call-test-{}-1", ::getpid()));
  ASSERT_TRUE(place);
  ASSERT_EQ(::seteuid(65534), 0);
  const auto listener = net::Listen(*place);
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_TRUE(listener);
  EXPECT_THAT(first.Absent(std::vector{1}), ElementsAre(1));
}

}  // namespace
}  // namespace hvd::engine::bootstrap
