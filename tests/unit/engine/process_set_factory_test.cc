// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/process_set/process_set_factory.h"

#include <gtest/gtest.h>

#include "tests/unit/engine/fake_process_set_delegate.h"

namespace hvd::engine {
namespace {

World WorldOf(Rank rank, const std::vector<std::string>& hosts) {
  World world;
  world.layout = MakeLayout(rank, hosts);
  world.ranks.resize(hosts.size());
  return world;
}

TEST(CheckRanks, SortsThem) {
  std::vector<Rank> ranks{2, 0, 1};
  EXPECT_TRUE(CheckRanks("the set", 3, &ranks));
  EXPECT_EQ(ranks, (std::vector<Rank>{0, 1, 2}));
}

TEST(CheckRanks, NamesTheRankThatCannotBeAMember) {
  const auto text = [](std::vector<Rank> ranks) { return CheckRanks("the set", 3, &ranks).error().message; };
  EXPECT_EQ(text({}), "the set is empty: give at least one rank");
  EXPECT_EQ(text({0, 3}), "the set names rank 3, but ranks are 0 to 2");
  EXPECT_EQ(text({0, -1}), "the set names rank -1, but ranks are 0 to 2");
  EXPECT_EQ(text({1, 0, 1}), "the set names rank 1 twice");
}

class ProcessSetFactoryTest : public testing::Test {
 protected:
  FakeProcessSetDelegate host_;
  Config config_;
  World world_ = WorldOf(1, {"a", "b", "c"});
  Recorder recorder_{world_, config_, false};
  ProcessSetFactory factory_{&world_, &config_, &host_, &recorder_};
};

TEST_F(ProcessSetFactoryTest, SerialNumbersGrowAlthoughIdsAreReused) {
  ASSERT_TRUE(factory_.LoadTable());
  EXPECT_EQ(factory_.Make(1, {1}, 0, ResumePolicy())->serial(), 0);
  factory_.Recycle(1);
  EXPECT_EQ(factory_.Make(1, {1}, 0, ResumePolicy())->serial(), 1);
  EXPECT_EQ(factory_.next_serial(), 2);
}

TEST_F(ProcessSetFactoryTest, ARankOutsideMakesTheSetWithoutConnections) {
  ASSERT_TRUE(factory_.LoadTable());
  const auto set = factory_.Make(3, {0, 2}, 0, ResumePolicy());
  EXPECT_EQ(set->id(), 3);
  EXPECT_FALSE(set->included());
  EXPECT_FALSE(set->by_memory());
  EXPECT_FALSE(set->polled());
}

TEST_F(ProcessSetFactoryTest, AlgorithmsThatDoNotExistAreRefused) {
  world_.settings.algorithms = "allreduce:shm:always=teleport";
  EXPECT_FALSE(factory_.LoadTable());
}

}  // namespace
}  // namespace hvd::engine
