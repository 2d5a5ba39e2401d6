// SPDX-License-Identifier: Apache-2.0
// What Membership decides in the cases that users see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "hvd/launch/elastic/membership.h"

namespace hvd::launch::elastic {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Phase = Membership::Phase;

// A job, with what it has decided so far.
class Job {
 public:
  Job(const Rules& rules, std::vector<Host> hosts) : membership(rules) { SetHosts(std::move(hosts)); }

  std::vector<Action> Step(const Event& event) {
    last = membership.Step(event);
    return last;
  }
  void SetHosts(std::vector<Host> hosts) { Step({.kind = Event::Kind::kHosts, .hosts = std::move(hosts)}); }
  void Ready(std::initializer_list<int> processes, int aligned = 0, int64_t commit = -1) {
    for (const int process : processes) {
      Step({.kind = Event::Kind::kReady, .process = process, .aligned = aligned, .commit = commit});
    }
  }
  void Kill(int process) { Step({.kind = Event::Kind::kEnded, .process = process, .by_itself = false}); }
  void Fail(int process) { Step({.kind = Event::Kind::kEnded, .process = process}); }
  void Exit(int process) { Step({.kind = Event::Kind::kEnded, .process = process, .good = true}); }
  void Done(int process) { Step({.kind = Event::Kind::kDone, .process = process}); }
  void Commit(int process) {
    Step({.kind = Event::Kind::kCommitted, .process = process, .generation = membership.view().generation});
  }
  void Fire(Timer timer) { Step({.kind = Event::Kind::kFired, .timer = timer}); }

  // What the last event led to.
  std::vector<int> Processes(Action::Kind kind) const {
    std::vector<int> processes;
    for (const Action& action : last) {
      if (action.kind == kind) processes.push_back(action.process);
    }
    return processes;
  }
  bool Did(Action::Kind kind) const { return !Processes(kind).empty(); }
  std::string Why() const {
    const auto failed = std::ranges::find(last, Action::Kind::kFail, &Action::kind);
    return failed == last.end() ? "" : failed->why;
  }
  std::vector<int> Members() const {
    std::vector<int> members;
    for (const ViewMember& member : membership.view().members) members.push_back(member.process);
    return members;
  }

  Membership membership;
  std::vector<Action> last;
};

const Rules kThree{.wanted = 3, .min_np = 2, .max_np = 3};

Job Running(const Rules& rules = kThree) {
  Job job(rules, {{"here", 3}});
  job.Ready({0, 1, 2});
  for (const int process : {0, 1, 2}) job.Commit(process);
  return job;
}

TEST(ElasticMembership, BeginsWhenAllProcessesAreReady) {
  Job job(kThree, {{"here", 3}});
  EXPECT_THAT(job.Processes(Action::Kind::kSpawn), ElementsAre(0, 1, 2));
  job.Ready({2, 0});
  EXPECT_EQ(job.membership.phase(), Phase::kStarting);
  job.Ready({1});
  EXPECT_THAT(job.Members(), ElementsAre(0, 1, 2));
  EXPECT_EQ(job.membership.view().commit, -1);
  EXPECT_THAT(job.membership.view().synced, IsEmpty());
}

TEST(ElasticMembership, BeginsWithEnoughRanksWhenOneDiesOrIsLate) {
  Job dies(kThree, {{"here", 3}});
  dies.Ready({0, 1});
  dies.Kill(2);
  EXPECT_THAT(dies.Members(), ElementsAre(0, 1));
  Job late(kThree, {{"here", 3}});
  late.Ready({1, 2});
  late.Fire(Timer::kStart);
  EXPECT_THAT(late.Members(), ElementsAre(1, 2));
}

TEST(ElasticMembership, GoesOnFromTheCommitThatAllSurvivorsHold) {
  Job job = Running();
  job.Kill(0);
  EXPECT_THAT(job.Processes(Action::Kind::kSpawn), ElementsAre(3));
  job.Ready({1}, 1, 42);
  EXPECT_EQ(job.membership.phase(), Phase::kRevoked);
  EXPECT_THAT(job.membership.Awaited(), ElementsAre(2));
  job.Ready({2}, 1, 41);
  EXPECT_THAT(job.Members(), ElementsAre(1, 2));
  EXPECT_EQ(job.membership.view().commit, 41);
  EXPECT_THAT(job.membership.view().synced, ElementsAre(0, 1));
  EXPECT_THAT(job.membership.view().lost, ElementsAre(0));
  EXPECT_EQ(job.membership.view().members[1].slot.local_rank, 1);
  EXPECT_EQ(job.membership.view().members[1].slot.local_size, 2);
}

TEST(ElasticMembership, LetsANewProcessJoinAtTheNextCommitBehindTheSurvivors) {
  Job job = Running();
  job.Kill(0);
  job.Ready({1, 2}, 1, 41);
  job.Ready({3});
  EXPECT_TRUE(job.Did(Action::Kind::kNews));
  job.Ready({1, 2}, 2, 50);
  EXPECT_THAT(job.Members(), ElementsAre(1, 2, 3));
  EXPECT_THAT(job.membership.view().synced, ElementsAre(0, 1));
  EXPECT_THAT(job.membership.view().added, ElementsAre(3));
  EXPECT_EQ(job.membership.resets(), 1);
  // The slot that was filled again is the first of its host.
  EXPECT_EQ(job.membership.view().members[2].slot.local_rank, 0);
}

TEST(ElasticMembership, TakesAProcessThatOnlyHadAnOlderStateForNoHolder) {
  Job job = Running();
  job.Kill(0);
  job.Ready({1, 2, 3}, 1, 41);
  job.Kill(1);  // 2 has had the state of all others in the second view, 4 never
  job.Ready({2}, 2, 45);
  job.Ready({4}, 1, 60);
  EXPECT_EQ(job.Members().front(), 2);
  EXPECT_EQ(job.membership.view().commit, 45);
}

TEST(ElasticMembership, WaitsBelowTheLeastNumberOfRanksAndThenEnds) {
  Job job = Running();
  job.Kill(0);
  job.Kill(1);
  job.Ready({2}, 1, 7);
  EXPECT_EQ(job.membership.phase(), Phase::kWaiting);
  EXPECT_TRUE(job.Did(Action::Kind::kWait));
  Job other = job;
  job.Ready({3});
  EXPECT_THAT(job.Members(), ElementsAre(2, 3));
  other.Fire(Timer::kElastic);
  EXPECT_THAT(other.Why(), HasSubstr("too few ranks"));
}

TEST(ElasticMembership, LeavesALateMemberBehindAndTakesItBack) {
  Job job = Running();
  job.Kill(0);
  job.Ready({1, 3}, 1, 9);
  job.Fire(Timer::kLate);
  EXPECT_THAT(job.Members(), ElementsAre(1, 3));
  EXPECT_THAT(job.membership.view().parked, ElementsAre(2));
  job.Ready({2}, 1, 9);
  EXPECT_TRUE(job.Did(Action::Kind::kNews));
}

TEST(ElasticMembership, DoesNotLeaveALateMemberBehindIfTheOthersAreTooFew) {
  Job job = Running();
  job.Kill(0);
  job.Ready({1}, 1, 9);
  job.Fire(Timer::kLate);
  EXPECT_EQ(job.membership.phase(), Phase::kRevoked);
  EXPECT_TRUE(job.Did(Action::Kind::kArm));
}

TEST(ElasticMembership, KillsALateMemberThatDoesNotComeBack) {
  Job job = Running();
  job.Kill(0);
  job.Ready({1, 3}, 1, 9);
  job.Fire(Timer::kLate);
  const Event too_long{.kind = Event::Kind::kFired, .timer = Timer::kParked, .slot = {"here", 2}};
  Job back = job;
  job.Step(too_long);
  EXPECT_THAT(job.Processes(Action::Kind::kKill), ElementsAre(2));
  job.Kill(2);
  EXPECT_THAT(job.Processes(Action::Kind::kSpawn), ElementsAre(4));
  back.Ready({2}, 1, 9);
  EXPECT_TRUE(back.Did(Action::Kind::kDisarm));
  back.Step(too_long);
  EXPECT_FALSE(back.Did(Action::Kind::kKill));
}

TEST(ElasticMembership, WaitsForSlotsIfTheyAreTooFew) {
  Job job(kThree, {{"here", 1}});
  EXPECT_TRUE(job.Did(Action::Kind::kWait));
  job.Ready({0});
  Job other = job;
  other.Fire(Timer::kElastic);
  EXPECT_THAT(other.Why(), HasSubstr("too few ranks"));
  job.SetHosts({{"here", 3}});
  EXPECT_FALSE(job.Did(Action::Kind::kWait));
  EXPECT_THAT(job.Processes(Action::Kind::kSpawn), ElementsAre(1, 2));
  job.Ready({1, 2});
  EXPECT_THAT(job.Members(), ElementsAre(0, 1, 2));
}

TEST(ElasticMembership, GrowsAndShrinksWithTheHosts) {
  Job job = Running({.wanted = 3, .min_np = 2, .max_np = 5});
  job.SetHosts({{"here", 4}});
  EXPECT_THAT(job.Processes(Action::Kind::kSpawn), ElementsAre(3));
  job.Ready({3});
  ASSERT_TRUE(job.Did(Action::Kind::kNews));
  EXPECT_EQ(job.last.back().news, News::kAdded);
  job.Ready({0, 1, 2}, 1, 5);
  EXPECT_THAT(job.Members(), ElementsAre(0, 1, 2, 3));
  job.SetHosts({{"here", 2}});
  EXPECT_EQ(job.last.back().news, News::kRemoved);
  job.Ready({0, 1, 2, 3}, 2, 8);
  EXPECT_THAT(job.Members(), ElementsAre(0, 1));
  EXPECT_THAT(job.Processes(Action::Kind::kLeave), ElementsAre(2, 3));
  EXPECT_EQ(job.membership.resets(), 0);
}

TEST(ElasticMembership, StartsNoMoreThanTheMostRanks) {
  Job job({.wanted = 2, .min_np = 1, .max_np = 2}, {{"here", 8}});
  EXPECT_THAT(job.Processes(Action::Kind::kSpawn), ElementsAre(0, 1));
}

TEST(ElasticMembership, EndsWhenMoreRanksAreLostThanTheLimitAllows) {
  Rules rules = kThree;
  rules.reset_limit = 1;
  Job job = Running(rules);
  job.Kill(0);
  job.Ready({1, 2}, 1, 3);
  job.Kill(1);
  job.Ready({3});
  job.Ready({2}, 2, 4);
  EXPECT_THAT(job.Why(), HasSubstr("--reset-limit"));
}

TEST(ElasticMembership, EndsWhenNobodyHoldsTheState) {
  Job job = Running();
  for (const int process : {0, 1, 2}) job.Kill(process);
  EXPECT_THAT(job.Why(), HasSubstr("every rank was lost"));
}

TEST(ElasticMembership, EndsWhenNoProcessReachesInit) {
  Job job(kThree, {{"here", 3}});
  for (const int process : {0, 1, 2}) job.Fail(process);
  EXPECT_THAT(job.Why(), HasSubstr("no rank reached hvd.init()"));
}

TEST(ElasticMembership, EndsWhenRanksFailOneAfterTheOtherWithoutACommit) {
  Job job({.wanted = 3, .min_np = 1, .max_np = 3}, {{"here", 3}});
  job.Ready({0, 1, 2});
  std::vector<int> members{0, 1, 2};
  int next = 3;
  for (int round = 0; round < 4; ++round) {
    job.Fail(members.front());
    members.erase(members.begin());
    for (const int member : members) job.Ready({member}, 1, 0);
    EXPECT_EQ(job.Why(), "");
    job.Step({.kind = Event::Kind::kFired, .timer = Timer::kRespawn, .slot = {"here", 0}});
    job.Step({.kind = Event::Kind::kFired, .timer = Timer::kRespawn, .slot = {"here", 1}});
    job.Step({.kind = Event::Kind::kFired, .timer = Timer::kRespawn, .slot = {"here", 2}});
    job.Ready({next});
    for (const int member : members) job.Ready({member}, 1, 0);
    members.push_back(next++);
  }
  job.Fail(members.front());
  EXPECT_THAT(job.Why(), HasSubstr("no commit between"));
}

TEST(ElasticMembership, WaitsLongerAndLongerBeforeItStartsASlotAgain) {
  Job job({.wanted = 2, .min_np = 1, .max_np = 2}, {{"here", 2}});
  job.Ready({0, 1});
  job.Commit(0);
  std::vector<int> seconds;
  for (int process = 1; process < 6; ++process) {
    job.Kill(process);
    int wait = 0;
    for (const Action& action : job.last) {
      if (action.kind == Action::Kind::kArm && action.timer == Timer::kRespawn) wait = action.seconds;
    }
    seconds.push_back(wait);
    job.Step({.kind = Event::Kind::kFired, .timer = Timer::kRespawn, .slot = {"here", 1}});
  }
  EXPECT_THAT(seconds, ElementsAre(0, 1, 2, 4, 8));
}

TEST(ElasticMembership, FinishesWhenAllMembersHaveFinished) {
  Job job = Running();
  job.Done(0);
  job.Exit(0);
  job.Kill(1);  // too late to be replaced
  EXPECT_FALSE(job.Did(Action::Kind::kSpawn));
  job.Ready({2}, 1, 99);
  EXPECT_THAT(job.Members(), ElementsAre(2));
  job.Done(2);
  job.Exit(2);
  EXPECT_TRUE(job.Did(Action::Kind::kFinish));
}

TEST(ElasticMembership, SendsThoseAwayWhoWouldBeginAgainAfterTheEnd) {
  Job job = Running();
  job.Kill(0);
  job.Ready({1, 2}, 1, 3);
  job.Commit(1);
  job.Done(1);
  job.Done(2);
  EXPECT_THAT(job.Processes(Action::Kind::kEnd), ElementsAre(3));
  job.Exit(1);
  job.Exit(2);
  job.Exit(3);
  EXPECT_TRUE(job.Did(Action::Kind::kFinish));
}

TEST(ElasticMembership, SaysThatACompleteCommitIsLostWithItsHolders) {
  Job job = Running();
  job.Kill(0);
  job.Ready({1, 3}, 1, 9);
  job.Fire(Timer::kLate);  // 2 is left behind
  job.Commit(1);
  job.Commit(3);
  job.Ready({2}, 1, 9);
  job.Kill(1);
  job.Kill(3);
  job.Step({.kind = Event::Kind::kFired, .timer = Timer::kRespawn, .slot = {"here", 0}});
  job.Ready({4}, 0, -1);
  EXPECT_TRUE(job.membership.view().rolled_back);
  EXPECT_EQ(job.membership.view().commit, 9);
}

}  // namespace
}  // namespace hvd::launch::elastic
