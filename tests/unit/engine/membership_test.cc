// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/membership/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hvd/engine/membership/liveness.h"
#include "tests/unit/engine/fake_process_set_delegate.h"
#include "tests/unit/engine/simulated_job.h"

namespace hvd::engine {
namespace {

using testing::HasSubstr;
using transport::Cause;
using Phase = Membership::Phase;

World ThreeHosts(Time* now) {
  World world;
  world.layout = MakeLayout(1, {"a", "b", "c"});
  for (int rank = 0; rank < 3; ++rank) world.ranks.push_back({"", fmt::format("host{}", rank), 100 + rank});
  world.loop = std::make_unique<SimulatedLoop>(now, [](int, uint32_t) { return false; });
  return world;
}

// Rank 1 of three ranks on three hosts, without connections.
class MembershipTest : public testing::Test {
 protected:
  MembershipTest() {
    config_.heartbeat_timeout_s = 4;
    config_.start_timeout_s = 30;
    ProcessSetOptions set;
    set.ranks = {0, 1, 2};
    set.me = 1;
    set.host = &host_;
    set.recorder = &recorder_;
    sets_.Add(std::make_unique<ProcessSet>(std::move(set)));
  }

  // An operation that rank 0, the sequencer, is asked for.
  void Begin() {
    op_.set = &sets_[0];
    op_.request.name = "grad";
    op_.request.signature.op = OpKind::kBarrier;
    sets_[0].Begin(&op_);
  }

  Time now_{std::chrono::seconds(100)};
  FakeProcessSetDelegate host_;
  Config config_;
  World world_ = ThreeHosts(&now_);
  Operation op_;
  Recorder recorder_{world_, config_, false};
  SetTable sets_;
  ControlChannel control_{&world_};
  Membership membership_{&world_, &config_, &control_, &sets_, &recorder_};
  Liveness liveness_{&world_, &config_, &control_, &sets_, &membership_};
};

TEST_F(MembershipTest, IsHealthyUntilRevoked) {
  EXPECT_TRUE(membership_.working());
  EXPECT_FALSE(membership_.revoked());
  EXPECT_EQ(membership_.Health().code, Code::kOk);
  EXPECT_FALSE(membership_.FinishRevocation(false));
}

TEST_F(MembershipTest, TheFirstCauseEndsTheGeneration) {
  Begin();
  membership_.Revoke({Cause::kSignal, 2, 9, 102}, {});
  membership_.Revoke({Cause::kDied, 0, 0, 100}, "too late");
  EXPECT_EQ(membership_.phase(), Phase::kRevoking);
  EXPECT_TRUE(membership_.revoked());
  EXPECT_EQ(membership_.Health().rank, 2);
  EXPECT_THAT(membership_.Health().message,
              HasSubstr("rank 2 (host host2, pid 102) was ended by signal 9 (Killed) during barrier 'grad'"));
  EXPECT_TRUE(host_.completed.empty());

  EXPECT_TRUE(membership_.FinishRevocation(true));
  EXPECT_EQ(membership_.phase(), Phase::kRevoked);
  ASSERT_EQ(host_.completed.size(), 1u);
  EXPECT_EQ(host_.completed[0].second.message, membership_.Health().message);
  EXPECT_FALSE(membership_.FinishRevocation(true));
}

TEST_F(MembershipTest, ARankThatLeavesRevokesNothing) {
  Begin();
  membership_.OnLeft(0, 0, "");
  EXPECT_TRUE(membership_.has_left(0));
  EXPECT_TRUE(membership_.working());
  ASSERT_EQ(host_.completed.size(), 1u);
  EXPECT_EQ(host_.completed[0].second.rank, 0);
  EXPECT_THAT(host_.completed[0].second.message,
              HasSubstr("rank 0 left (host host0, pid 100); it called hvd.shutdown()"));
}

TEST_F(MembershipTest, TheRankThatLeftFirstIsBlamedForATransferThatFails) {
  membership_.OnLeft(2, 2, "it failed with ValueError");
  membership_.OnLeft(0, 2, "it failed with ValueError");
  membership_.GiveUp({Code::kUnknown, "connection closed", 0});
  EXPECT_EQ(membership_.Health().rank, 2);
  EXPECT_THAT(membership_.Health().message, HasSubstr("it failed with ValueError"));
}

TEST_F(MembershipTest, AConnectionThatEndsAfterAGoodbyeMeansNothing) {
  membership_.OnLeft(2, 2, "");
  membership_.OnPairClosed(2, {Code::kUnknown, "closed", 2});
  EXPECT_TRUE(membership_.working());
}

TEST_F(MembershipTest, AShutdownBeginsOnceAndChangesTheErrorOfLaterCalls) {
  EXPECT_TRUE(membership_.BeginShutdown());
  EXPECT_FALSE(membership_.BeginShutdown());
  EXPECT_TRUE(membership_.shut_down());
  EXPECT_THAT(membership_.Health().message, HasSubstr("hvd.shutdown() was called; call hvd.init() again"));
}

TEST_F(MembershipTest, LeavingWithPendingOperationsBlamesThisRankOrTheOneThatLeftBefore) {
  membership_.NoteOutcome({Code::kAborted, "Mismatched shapes", -1});
  membership_.BeginLeaving(true);
  EXPECT_EQ(membership_.DescribeCause().rank, 1);
  EXPECT_THAT(membership_.DescribeCause().message, HasSubstr("Its last error: Mismatched shapes"));
}

TEST_F(MembershipTest, LeavingIdleRevokesNothing) {
  membership_.BeginLeaving(false);
  EXPECT_TRUE(membership_.working());
}

TEST_F(MembershipTest, APeerThatDoesNotAnswerIsDeclaredLost) {
  Begin();
  liveness_.OnPong(0);
  for (int quarter = 0; quarter <= 5 && membership_.working(); ++quarter) {
    liveness_.Check(now_);
    now_ += std::chrono::seconds(1);
  }
  EXPECT_EQ(membership_.Health().rank, 0);
  EXPECT_THAT(membership_.Health().message, HasSubstr("did not respond for 4 s"));
}

TEST_F(MembershipTest, APeerThatNobodyWaitsForIsNotAsked) { EXPECT_EQ(liveness_.Check(now_), Time::max()); }

}  // namespace
}  // namespace hvd::engine
