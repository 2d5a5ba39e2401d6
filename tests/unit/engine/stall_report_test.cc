// SPDX-License-Identifier: Apache-2.0
// From what ranks say about themselves to the block that a user reads.
#include "hvd/engine/stall/stall_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace hvd::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using wire::Waiting;
using WaitStage = Waiting::Stage;

Waiting Op(const std::string& name, std::vector<int64_t> missing = {}, WaitStage stage = WaitStage::kAsked) {
  Waiting waiting;
  waiting.request.name = name;
  waiting.request.signature.shape = {4};
  waiting.stage = stage;
  waiting.waited_ms = stage == WaitStage::kOthers ? 0 : 61000;
  waiting.missing_count = static_cast<int32_t>(missing.size());
  waiting.missing = std::move(missing);
  return waiting;
}

class StallReportTest : public ::testing::Test {
 protected:
  explicit StallReportTest(int size = 4) : ranks_(size), all_(size) {
    std::iota(all_.begin(), all_.end(), 0);
    for (int i = 0; i < size; ++i) ranks_[i] = RankObservation{i, "node", 100 + i, wire::StatusReply{}, 0};
  }

  void Waits(Rank rank, const Waiting& waiting) {
    ranks_[rank].reply->blocked = true;
    ranks_[rank].reply->waiting.push_back(waiting);
  }
  void Silent(Rank rank, char state) {
    ranks_[rank].reply.reset();
    ranks_[rank].process_state = state;
  }
  std::optional<StallReport> Report(double limit_s = 60) {
    return DescribeStall(
        ranks_, [this](int set) { return set == 0 ? &all_ : &subset_; }, limit_s);
  }
  std::string Text() {
    const auto report = Report();
    return report ? report->text : "";
  }

  std::vector<RankObservation> ranks_;
  std::vector<Rank> all_;
  std::vector<Rank> subset_{2, 3};
};

TEST_F(StallReportTest, NothingToSay) {
  EXPECT_FALSE(Report());
  for (Rank rank = 0; rank < 4; ++rank) Waits(rank, Op("a"));
  EXPECT_FALSE(Report()) << "all have it: who was missing has submitted it since";
}

TEST_F(StallReportTest, ShortWaitsAreNotReported) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("a", {2}));
  EXPECT_TRUE(Report(60));
  EXPECT_FALSE(Report(70));
}

TEST_F(StallReportTest, BusyRank) {
  for (const Rank rank : {0, 1, 3}) {
    Waits(rank, Op("a", rank == 0 ? std::vector<int64_t>{2} : std::vector<int64_t>{}));
    ranks_[rank].reply->waiting[0].before = true;
  }
  ranks_[2].reply->submitted = {0, "w", OpKind::kBroadcast, 62000};
  ranks_[2].reply->finished = {0, "w", OpKind::kBroadcast, 61500};
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_THAT(report->at_fault, ElementsAre(2));
  EXPECT_EQ(report->text,
            "Stalled for 61 s: allreduce 'a' waits for rank 2.\n"
            "  Ranks [0, 1, 3] wait for allreduce 'a' (float32 [4], sum); missing ranks: rank 2\n"
            "  Rank 2 (host node, pid 102) is busy in its own code: it has not come to this operation again; last "
            "submitted broadcast 'w' 62 s ago, over 62 s ago.\n"
            "  Next: look at its stack: py-spy dump --pid 102.");
  EXPECT_EQ(report->brief, "rank 2 is busy in its own code");
}

TEST_F(StallReportTest, NeverSubmitted) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("a", {2}));
  EXPECT_THAT(Text(),
              HasSubstr("pid 102) never submitted it, and is in its own code; it has submitted nothing so far"));
}

TEST_F(StallReportTest, SilentRanks) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("a", {2}));
  const std::pair<char, std::string> states[] = {{'T', "is stopped"},
                                                 {'t', "is stopped"},
                                                 {'Z', "is dead"},
                                                 {'-', "is dead"},
                                                 {'D', "stuck in the kernel"},
                                                 {'R', "although its process runs"},
                                                 {0, "the network to it is cut"}};
  for (const auto& [state, words] : states) {
    Silent(2, state);
    EXPECT_THAT(Text(), HasSubstr(words));
    EXPECT_THAT(Report()->at_fault, ElementsAre(2));
  }
}

TEST_F(StallReportTest, TheSequencerIsTheSilentOne) {
  for (const Rank rank : {1, 2, 3}) Waits(rank, Op("a"));
  Silent(0, 'T');
  EXPECT_THAT(Report()->at_fault, ElementsAre(0));
}

TEST_F(StallReportTest, OneRankWaitsForAnotherName) {
  for (const Rank rank : {0, 1, 3})
    Waits(rank, Op("allreduce.grad", rank == 0 ? std::vector<int64_t>{2} : std::vector<int64_t>{}));
  Waits(2, Op("allreduce.grad_1"));
  Waits(0, Op("allreduce.grad_1", {0, 1, 3}, WaitStage::kOthers));
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_THAT(report->at_fault, ElementsAre(2));
  EXPECT_THAT(report->text,
              HasSubstr("Rank 2 (host node, pid 102) waits for allreduce 'allreduce.grad_1' (float32 [4], "
                        "sum), which ranks [0, 1, 3] have not submitted (from allreduce 'allreduce.grad' "
                        "it differs only in name)"));
  EXPECT_THAT(report->text, HasSubstr("Next: give names that do not depend on the rank"));
}

TEST_F(StallReportTest, TheOddOneMayHaveComeLater) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("a", {2}));
  Waits(2, Op("b", {0, 1, 3}));
  ranks_[2].reply->waiting[0].waited_ms = 1000;
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_THAT(report->at_fault, ElementsAre(2));
  EXPECT_THAT(report->text, HasSubstr("pid 102) waits for allreduce 'b'"));
}

TEST_F(StallReportTest, WhatDiffers) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("allreduce.g", {2}));
  Waiting other = Op("allgather.g", {0, 1, 3});
  other.request.signature.op = OpKind::kAllgather;
  Waits(2, other);
  EXPECT_THAT(Text(), HasSubstr("it differs only in operation)"));
  other = Op("allreduce.h", {0, 1, 3});
  other.request.signature.dtype = DType::kFloat64;
  other.request.signature.shape = {5};
  ranks_[2].reply->waiting = {other};
  EXPECT_THAT(Text(), HasSubstr("it differs in name, type, shape)"));
}

TEST_F(StallReportTest, TheSameOnAnotherProcessSet) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("g", {2}));
  Waiting other = Op("g", {3});
  other.set = 1;
  Waits(2, other);
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_THAT(report->text, HasSubstr("on process set 1"));
  EXPECT_THAT(report->at_fault, ElementsAre(2));
  EXPECT_THAT(report->text, HasSubstr("it differs only in process set)"));
}

TEST_F(StallReportTest, WhoWaitsForTheCulpritElsewhereIsNotBlamed) {
  Waits(0, Op("a", {2, 3}));
  Waits(1, Op("a"));
  Waiting pair = Op("pair", {2});
  pair.set = 1;
  Waits(3, pair);
  EXPECT_THAT(Report()->at_fault, ElementsAre(2));
}

TEST_F(StallReportTest, OneIsAhead) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("a", {2}));
  Waits(2, Op("b", {0, 1, 3}));
  for (RankObservation& observation : ranks_) observation.reply->waiting[0].before = true;
  EXPECT_THAT(Text(), HasSubstr("Both were done before: it skipped the former"));
}

TEST_F(StallReportTest, WhatIsInFlightDoesNotKeepAProgramThatIsElsewhere) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("a", {2}));
  Waits(2, Op("ahead", {0, 1, 3}));
  ranks_[2].reply->blocked = false;
  ranks_[0].reply->waiting[0].before = true;
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_THAT(report->at_fault, ElementsAre(2));
  EXPECT_THAT(report->text, HasSubstr("pid 102) is busy in its own code"));
}

TEST_F(StallReportTest, AgreedButNotMoved) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("a", {2}, WaitStage::kRunning));
  Waits(2, Op("a", {}, WaitStage::kAgreed));
  const auto report = Report();
  ASSERT_TRUE(report);
  EXPECT_THAT(report->at_fault, ElementsAre(2));
  EXPECT_THAT(report->text, HasSubstr("does not move its data of allreduce 'a': it waits for the memory"));
}

TEST_F(StallReportTest, IsShortHoweverMuchWaits) {
  for (int i = 0; i < 200; ++i) {
    for (const Rank rank : {0, 1, 3}) Waits(rank, Op("gradient/of/layer/" + std::to_string(i), {2}));
  }
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("(and 199 more) waits for rank 2"));
  EXPECT_THAT(text, HasSubstr("and 194 more; missing ranks: rank 2"));
  EXPECT_LT(std::ranges::count(text, '\n'), 8);
  EXPECT_LT(text.size(), 1200u);
}

TEST_F(StallReportTest, CountsAlsoWhatRanksHadNoRoomToName) {
  for (const Rank rank : {0, 1, 3}) {
    for (int i = 0; i < 200; ++i) Waits(rank, Op("g" + std::to_string(i), {2}));
    ranks_[rank].reply->more = 2800;
  }
  EXPECT_THAT(Text(), HasSubstr("(and 2999 more) waits for rank 2"));
  EXPECT_THAT(Text(), HasSubstr("And 2800 more operations."));
}

TEST_F(StallReportTest, NamesAreEscapedAndCut) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("evil\n[time: W hvd] " + std::string(5000, 'x'), {2}));
  const std::string text = Text();
  EXPECT_THAT(text, Not(HasSubstr("evil\n")));
  EXPECT_LT(text.size(), 1000u);
}

TEST_F(StallReportTest, EqualButForTimesHasAnEqualKey) {
  for (const Rank rank : {0, 1, 3}) Waits(rank, Op("a", {2}));
  const std::string key = Report()->key;
  for (const Rank rank : {0, 1, 3}) ranks_[rank].reply->waiting[0].waited_ms = 121000;
  EXPECT_EQ(Report()->key, key);
  Silent(2, 'T');
  EXPECT_NE(Report()->key, key);
}

TEST_F(StallReportTest, TheKeyDoesNotDependOnWhichOfTwoWaitsLonger) {
  for (const Rank rank : {0, 1, 3}) {
    Waits(rank, Op("a", {2}));
    Waits(rank, Op("b", {2}));
  }
  const auto first = Report();
  for (const Rank rank : {0, 1, 3}) ranks_[rank].reply->waiting[1].waited_ms += 2;
  const auto second = Report();
  EXPECT_THAT(first->text, HasSubstr("allreduce 'a' (and 1 more)"));
  EXPECT_THAT(second->text, HasSubstr("allreduce 'b' (and 1 more)"));
  EXPECT_EQ(first->key, second->key);
}

// Ranks [2, 3] have an operation on their set 1 that only 3 submitted, and all remove the set.
class RemovalTest : public StallReportTest {
 protected:
  RemovalTest() {
    Waiting x = Op("x", {2});
    x.set = 1;
    x.waited_ms = 60990;
    Waits(3, x);
    for (Rank rank = 0; rank < 4; ++rank) {
      Waiting removal = Op("process_set.change", rank == 0 ? std::vector<int64_t>{3} : std::vector<int64_t>{});
      removal.request.signature.op = OpKind::kRemoveProcessSet;
      removal.request.signature.numbers = {1};
      if (rank == 3) removal.stage = WaitStage::kHeld;
      Waits(rank, removal);
    }
  }
};

TEST_F(RemovalTest, BlamesWhoLeftOutAnOperationOfTheSet) {
  EXPECT_THAT(Report()->at_fault, ElementsAre(2));
  EXPECT_EQ(
      Text(),
      "Stalled for 61 s: allreduce 'x' on process set 1 (and 1 more) waits for rank 2.\n"
      "  Rank 3 waits for allreduce 'x' on process set 1 (float32 [4], sum); missing ranks: rank 2\n"
      "  Ranks [0, 1, 2] wait for remove_process_set of process set 1; missing ranks: rank 3\n"
      "  Rank 3 is in remove_process_set of process set 1, and waits there for its own operations on that set.\n"
      "  Rank 2 (host node, pid 102) is in remove_process_set of process set 1 without having submitted allreduce "
      "'x' on process set 1, which rank 3 waits for.\n"
      "  Next: submit an operation on all ranks of its set, or on none, before the set is removed.");
}

TEST_F(RemovalTest, WhoIsElsewhereIsBlamedAsAlways) {
  ranks_[2].reply = wire::StatusReply{};
  ranks_[0].reply->waiting[0].missing = {2, 3};
  EXPECT_THAT(Report()->at_fault, ElementsAre(2));
  EXPECT_THAT(Text(), HasSubstr("pid 102) never submitted it, and is in its own code"));
}

class TwoRanks : public StallReportTest {
 protected:
  TwoRanks() : StallReportTest(2) {}
};

TEST_F(TwoRanks, NeitherIsMoreRight) {
  Waits(0, Op("a", {1}));
  Waits(1, Op("b", {0}));
  EXPECT_THAT(Report()->at_fault, ElementsAre(0, 1));
  EXPECT_TRUE(Report()->undecided);
  EXPECT_THAT(Text(), HasSubstr("cannot tell which ranks are wrong"));
  EXPECT_THAT(Text(), StartsWith("Stalled for 61 s: ranks [0, 1] wait for different operations.\n"));
  EXPECT_EQ(Report()->brief, "rank 0 waits for allreduce 'a', rank 1 waits for allreduce 'b'");
}

TEST_F(TwoRanks, TheOneThatDoesAsBeforeIsRight) {
  Waits(0, Op("a", {1}));
  Waits(1, Op("b", {0}));
  ranks_[1].reply->waiting[0].before = true;
  EXPECT_THAT(Report()->at_fault, ElementsAre(0));
}

}  // namespace
}  // namespace hvd::engine
