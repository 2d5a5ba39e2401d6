// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that meet in a store: who is missing, who differs, what earlier jobs left behind.
#include "hvd/engine/bootstrap/rendezvous_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "hvd/engine/bootstrap/rank0_refusal.h"
#include "hvd/engine/bootstrap/rendezvous_errors.h"
#include "hvd/net/deadline.h"
#include "hvd/rendezvous/factory.h"

namespace hvd::engine::bootstrap {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RankDescriptor MakeCard(int size) {
  RankDescriptor card;
  card.version = HVD_VERSION;
  card.size = size;
  card.process = topology::ThisProcess();
  card.hostname = "here";
  card.trust = "none";
  return card;
}

Config MakeConfig(Rank rank, int size, const std::string& where) {
  Config config;
  config.rank = rank;
  config.size = size;
  config.rendezvous_addr = where;
  config.start_timeout_s = 20;
  return config;
}

// One rank's start: what it is told, how it introduces itself, what became of it.
struct Starter {
  Config config;
  RankDescriptor card;
  std::string error;  // empty: it met the others
  Code code = Code::kOk;
  std::vector<RankDescriptor> cards;

  void Run() {
    const auto store = rendezvous::OpenStore({.address = config.rendezvous_addr});
    RendezvousProtocol meeting(config, store->get(), net::DeadlineAfter(Seconds(config.start_timeout_s)));
    auto met = meeting.Meet(card);
    if (met) {
      cards = std::move(*met);
      meeting.Finish(seconds(5), true);
    } else {
      error = met.error().message;
      code = met.error().code;
    }
  }
};

class RendezvousProtocolTest : public ::testing::Test {
 protected:
  RendezvousProtocolTest() {
    char folder[] = "/tmp/hvd-meeting-XXXXXX";
    EXPECT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    where_ = "file://" + folder_;
  }
  ~RendezvousProtocolTest() override { std::filesystem::remove_all(folder_); }

  std::vector<Starter> Starters(int size) {
    std::vector<Starter> starters;
    for (Rank rank = 0; rank < size; ++rank) starters.push_back({MakeConfig(rank, size, where_), MakeCard(size)});
    return starters;
  }
  static void RunAll(std::vector<Starter>& starters) {
    std::vector<std::thread> threads;
    for (Starter& starter : starters) threads.emplace_back([&] { starter.Run(); });
    for (auto& thread : threads) thread.join();
  }
  std::unique_ptr<rendezvous::Store> Store() { return *rendezvous::OpenStore({.address = where_}); }
  int FilesLeft() const { return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder_), {})); }
  void AwaitCardOf(Rank rank) const {
    const std::string end = fmt::format("%2Fcard%2F{}", rank);
    const auto there = [&] {
      return std::ranges::any_of(std::filesystem::directory_iterator(folder_),
                                 [&](const auto& file) { return file.path().filename().string().ends_with(end); });
    };
    while (!there()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // A process that is no more.
  static topology::Process Dead() {
    topology::Process process = topology::ThisProcess();
    process.start_time += 1;
    return process;
  }

  std::string folder_, where_;
};

TEST_F(RendezvousProtocolTest, AllMeetAgainAndAgainInOneFolderAndLeaveNothing) {
  for (int round = 0; round < 3; ++round) {
    auto starters = Starters(3);
    RunAll(starters);
    for (const Starter& starter : starters) {
      EXPECT_EQ(starter.error, "");
      ASSERT_EQ(starter.cards.size(), 3u);
      for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(starter.cards[rank].nonce, starters[0].cards[rank].nonce);
    }
    EXPECT_EQ(FilesLeft(), 0);
  }
}

TEST_F(RendezvousProtocolTest, WhoDidNotComeIsNamedOnAllRanks) {
  auto starters = Starters(4);
  starters.resize(2);
  starters[0].config.start_timeout_s = 1;  // ends first; what rank 0 says reaches the other
  RunAll(starters);
  for (const Starter& starter : starters) {
    EXPECT_EQ(starter.code, Code::kDeadlineExceeded);
    EXPECT_THAT(starter.error, HasSubstr("ranks 2, 3 of 4 did not come to " + where_ + " within 1 s (2 came)"));
    EXPECT_THAT(starter.error, Not(HasSubstr("hvd/")));
  }
}

TEST_F(RendezvousProtocolTest, OneThatTheLauncherSawLeaveIsNotWaitedFor) {
  const auto store = Store();
  ASSERT_TRUE(store->Set(rendezvous::kLeftKey, "7 2"));
  auto starters = Starters(3);
  starters.pop_back();
  RunAll(starters);
  for (const Starter& starter : starters) {
    EXPECT_THAT(starter.error, HasSubstr("rank 2 of 3 ended with exit code 0 before it called hvd.init()"));
  }
  // Rank 0 of the list [7, 1] is rank 7 to the launcher.
  auto some = Starters(2);
  some.erase(some.begin());
  some[0].config.group = "7-1";
  RunAll(some);
  EXPECT_THAT(some[0].error, HasSubstr("rank 0 of 2 ended with exit code 0"));
}

TEST_F(RendezvousProtocolTest, OneThatTheLauncherOfAnElasticJobSawDieIsNotWaitedFor) {
  const auto store = Store();
  auto starters = Starters(3);
  ASSERT_TRUE(store->Set(rendezvous::LostKey(starters[0].config.generation), "2 1"));
  ASSERT_TRUE(store->Set(rendezvous::LostKey(starters[0].config.generation + 1), "0"));
  starters.pop_back();
  RunAll(starters);
  for (const Starter& starter : starters) {
    EXPECT_THAT(starter.error, HasSubstr("rank 2 of 3 ended before the others reached it in hvd.init()"));
  }
}

TEST_F(RendezvousProtocolTest, AnAbsentRankZeroIsNamed) {
  auto starters = Starters(2);
  starters.erase(starters.begin());
  starters[0].config.start_timeout_s = 0.2;
  RunAll(starters);
  EXPECT_THAT(starters[0].error, HasSubstr("rank 0 of 2 did not come to " + where_ + " within 0.2 s"));
}

TEST_F(RendezvousProtocolTest, DifferentSizesAreToldToAll) {
  for (const int wrong : {2, 5}) {
    auto starters = Starters(3);
    starters[1].config.size = starters[1].card.size = wrong;
    {
      std::jthread zero([&] { starters[0].Run(); });
      std::jthread two([&] { starters[2].Run(); });
      // Rank 0 invites nobody any more when it has seen the odd one.
      AwaitCardOf(2);
      starters[1].Run();
    }
    for (const Starter& starter : starters) {
      EXPECT_EQ(starter.code, Code::kInvalidArgument);
      EXPECT_THAT(starter.error,
                  AllOf(HasSubstr("HOROVOD_SIZE differs: 3 on rank 0"), HasSubstr(fmt::format("{} on rank 1", wrong))));
    }
  }
}

TEST_F(RendezvousProtocolTest, ARankBeyondRankZerosSizeIsToldToBoth) {
  auto starters = Starters(3);
  starters[0].config.size = starters[0].card.size = 2;
  starters.erase(starters.begin() + 1);
  RunAll(starters);
  for (const Starter& starter : starters) {
    EXPECT_THAT(starter.error, AllOf(HasSubstr("HOROVOD_SIZE differs: 2 on rank 0"), HasSubstr("3 on rank 2")));
  }
}

TEST_F(RendezvousProtocolTest, VersionsAndTrustAndSetsAreCompared) {
  const std::vector<std::pair<std::function<void(RankDescriptor&)>, std::string>> cases{
      {[](RankDescriptor& card) { card.version = "0.0.1"; }, "runs 0.0.1; install one version everywhere"},
      {[](RankDescriptor& card) { card.trust = "1234"; }, "job tokens differ: rank 0"},
      {[](RankDescriptor& card) { card.encrypt = true; }, "HOROVOD_ENCRYPT differs: 0 on rank 0"},
      {[](RankDescriptor& card) { card.process_sets = "[[0]]"; }, "process sets differ: rank 0"},
      {[](RankDescriptor& card) { card.settings.algorithms = "any:shm:direct=none"; },
       "HOROVOD_ALGORITHMS differs: unset on rank 0"},
  };
  for (const auto& [change, text] : cases) {
    auto starters = Starters(2);
    change(starters[1].card);
    RunAll(starters);
    for (const Starter& starter : starters) EXPECT_THAT(starter.error, AllOf(HasSubstr(text), HasSubstr("rank 1")));
  }
}

TEST_F(RendezvousProtocolTest, ARankGivenTwiceIsToldToAll) {
  auto starters = Starters(3);
  starters[2].config.rank = 1;
  RunAll(starters);
  for (const Starter& starter : starters) {
    EXPECT_EQ(starter.code, Code::kFailedPrecondition);
    EXPECT_THAT(starter.error, HasSubstr("rank 1 was given twice"));
  }
}

TEST_F(RendezvousProtocolTest, RankZeroGivenTwiceIsToldToBoth) {
  auto starters = Starters(2);
  starters[1].config.rank = 0;
  RunAll(starters);
  for (const Starter& starter : starters) EXPECT_THAT(starter.error, HasSubstr("rank 0 was given twice"));
}

TEST_F(RendezvousProtocolTest, AnEarlierGenerationIsToldAtOnceAndTheLaterOneAtItsTimeOut) {
  auto starters = Starters(2);
  starters[1].config.generation = 3;
  starters[1].config.start_timeout_s = 2;
  RunAll(starters);
  EXPECT_THAT(starters[0].error, AllOf(HasSubstr("HOROVOD_GENERATION differs: 0 on rank 0"), HasSubstr("3 on rank 1")));
  EXPECT_THAT(starters[1].error, AllOf(HasSubstr("rank 0 of 2 did not come"),
                                       HasSubstr("came with HOROVOD_GENERATION=0"), HasSubstr("rank 1 has 3")));
}

TEST_F(RendezvousProtocolTest, KeysOfAKilledJobAreIgnored) {
  RankDescriptor dead = MakeCard(4);
  dead.nonce = "old";
  dead.process = Dead();
  ASSERT_TRUE(Store()->Set("hvd/0/job", Encode(dead)));
  ASSERT_TRUE(Store()->Set("hvd/0/old/card/1", Encode(dead)));
  ASSERT_TRUE(Store()->Set("hvd/at/0", EncodeStart({7, Dead()})));
  auto starters = Starters(2);
  // Rank 1 sees the old invitation first.
  std::thread first([&] { starters[1].Run(); });
  starters[0].Run();
  first.join();
  for (const Starter& starter : starters) EXPECT_EQ(starter.error, "");
  EXPECT_EQ(FilesLeft(), 0);
}

TEST_F(RendezvousProtocolTest, KeysOfAJobOnAnotherMachineAreLeftForTheNewOnes) {
  // Whether that rank 0 lives cannot be known. It gave no verdict, so rank 1 follows the next invitation.
  RankDescriptor remote = MakeCard(5);
  remote.nonce = "old";
  remote.process.machine = "elsewhere";
  ASSERT_TRUE(Store()->Set("hvd/0/job", Encode(remote)));
  ASSERT_TRUE(Store()->Set("hvd/0/old/card/1", Encode(remote)));
  auto starters = Starters(2);
  std::thread first([&] { starters[1].Run(); });
  // It has followed the old one when it says that it differs.
  ASSERT_TRUE(Store()->Wait({"hvd/0/old/trouble"}, seconds(20)));
  starters[0].Run();
  first.join();
  for (const Starter& starter : starters) EXPECT_EQ(starter.error, "");
}

TEST_F(RendezvousProtocolTest, ARankThatDiesIsNamedBeforeTheTimeOut) {
  const int child = fork();
  if (child == 0) {
    auto starters = Starters(3);
    starters[1].Run();
    _exit(0);
  }
  std::thread killer([&] {
    const auto store = Store();
    const auto job = store->Wait({"hvd/0/job"}, seconds(20));
    EXPECT_TRUE(store->Wait({"hvd/0/" + DecodeRankDescriptor((*job)[0])->nonce + "/card/1"}, seconds(20)));
    kill(child, SIGKILL);
  });
  auto starters = Starters(3);
  starters[0].config.start_timeout_s = 3600;  // the test would not end if it took this
  starters[0].Run();
  killer.join();
  waitpid(child, nullptr, 0);
  EXPECT_EQ(starters[0].code, Code::kUnknown);
  EXPECT_THAT(starters[0].error, HasSubstr(fmt::format("rank 1 (pid {} on here) of 3 ended", child)));
}

TEST_F(RendezvousProtocolTest, RankZerosDeathIsNamedBeforeTheTimeOut) {
  const int child = fork();
  if (child == 0) {
    auto starters = Starters(3);
    starters[0].Run();
    _exit(0);
  }
  std::thread killer([&] {
    const auto store = Store();
    const auto job = store->Wait({"hvd/0/job"}, seconds(20));
    EXPECT_TRUE(store->Wait({"hvd/0/" + DecodeRankDescriptor((*job)[0])->nonce + "/card/1"}, seconds(20)));
    kill(child, SIGKILL);
  });
  auto starters = Starters(3);
  starters[1].config.start_timeout_s = 3600;
  starters[1].Run();
  killer.join();
  waitpid(child, nullptr, 0);
  EXPECT_THAT(starters[1].error, HasSubstr(fmt::format("rank 0 (pid {} on here) of 3 ended", child)));
}

TEST_F(RendezvousProtocolTest, ARankZeroThatCannotComeSaysWhyBeforeTheTimeOut) {
  auto starters = Starters(3);
  const auto store = Store();
  {
    const Rank0Refusal refusal(store.get(), starters[0].config, {Code::kNotFound, "no token file"});
    starters.erase(starters.begin());
    for (Starter& starter : starters) starter.config.start_timeout_s = 3600;
    RunAll(starters);
  }
  for (const Starter& starter : starters) {
    EXPECT_EQ(starter.code, Code::kNotFound);
    EXPECT_EQ(starter.error, fmt::format("rank 0 (pid {}) of 3 cannot come to {}: no token file", getpid(), where_));
    (void)store->Delete(fmt::format("hvd/at/{}", starter.config.rank));
  }
  EXPECT_EQ(FilesLeft(), 0);
}

TEST_F(RendezvousProtocolTest, ARefusalThatAKilledJobLeftIsIgnored) {
  const auto store = Store();
  // Of one on another machine nothing is known, and a folder keeps what it is given.
  topology::Process elsewhere = topology::ThisProcess();
  elsewhere.machine = "elsewhere";
  for (const topology::Process& writer : {Dead(), elsewhere}) {
    ASSERT_TRUE(store->Set("hvd/0/refusal", EncodeRefusal({0, writer}, {Code::kNotFound, "no token file"})));
    auto starters = Starters(2);
    std::thread early([&] { starters[1].Run(); });
    // Long enough for it to have looked for a refusal.
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    starters[0].Run();
    early.join();
    for (const Starter& starter : starters) EXPECT_EQ(starter.error, "");
    EXPECT_EQ(FilesLeft(), 0);
  }
}

TEST_F(RendezvousProtocolTest, ARankThatCannotJoinIsNamedBeforeTheTimeOut) {
  auto starters = Starters(3);
  for (Starter& starter : starters) starter.config.start_timeout_s = 3600;
  std::thread unable([&] {
    const auto store = Store();
    RendezvousProtocol meeting(starters[1].config, store.get(), net::DeadlineAfter(seconds(20)));
    // Who is at fault is no matter of words.
    meeting.GiveUp({Code::kFailedPrecondition, "the rank file cannot be read"});
  });
  std::thread last([&] { starters[2].Run(); });
  starters[0].Run();
  unable.join();
  last.join();
  for (const Rank rank : {0, 2}) {
    EXPECT_EQ(starters[rank].error, "rank 1 gave up in hvd.init(): the rank file cannot be read");
  }
}

TEST_F(RendezvousProtocolTest, ARankZeroThatCannotInviteSaysSo) {
  auto starters = Starters(2);
  for (Starter& starter : starters) starter.config.start_timeout_s = 3600;
  std::thread other([&] { starters[1].Run(); });
  const auto store = Store();
  RendezvousProtocol meeting(starters[0].config, store.get(), net::DeadlineAfter(seconds(20)));
  meeting.GiveUp({Code::kFailedPrecondition, "no descriptors"});
  other.join();
  EXPECT_THAT(starters[1].error, AllOf(HasSubstr("rank 0"), HasSubstr("no descriptors")));
}

TEST_F(RendezvousProtocolTest, WhoGivesUpLaterIsHeard) {
  auto starters = Starters(2);
  const auto run = [&](Rank rank, auto&& then) {
    const auto store = Store();
    RendezvousProtocol meeting(starters[rank].config, store.get(), net::DeadlineAfter(std::chrono::hours(1)));
    ASSERT_TRUE(meeting.Meet(starters[rank].card));
    then(meeting);
  };
  std::thread other([&] {
    run(1, [](RendezvousProtocol& meeting) { meeting.GiveUp({Code::kResourceExhausted, "no descriptors"}); });
  });
  run(0, [](RendezvousProtocol& meeting) {
    const auto gathered = meeting.Gather("tcp", {1});
    ASSERT_FALSE(gathered);
    // Rank 0 has descriptors: its code is not the one that tells to raise a limit here.
    EXPECT_EQ(gathered.error().code, Code::kInternal);
    EXPECT_EQ(gathered.error().message, "rank 1 gave up in hvd.init(): no descriptors");
  });
  other.join();
}

TEST_F(RendezvousProtocolTest, WhoGivesUpAtTheVeryEndHoldsNobodyUp) {
  auto starters = Starters(2);
  const auto run = [&](Rank rank, auto&& then) {
    const auto store = Store();
    RendezvousProtocol meeting(starters[rank].config, store.get(), net::DeadlineAfter(std::chrono::hours(1)));
    ASSERT_TRUE(meeting.Meet(starters[rank].card));
    then(meeting);
  };
  std::thread other([&] { run(1, [](RendezvousProtocol& meeting) { meeting.GiveUp({Code::kInternal, "sorry"}); }); });
  // The test would not end if rank 0 waited.
  run(0, [](RendezvousProtocol& meeting) { meeting.Finish(std::chrono::hours(1), true); });
  other.join();
}

TEST_F(RendezvousProtocolTest, WhoGetsStuckLaterIsNamed) {
  auto starters = Starters(2);
  std::thread other([&] {
    const auto store = Store();
    RendezvousProtocol meeting(starters[1].config, store.get(), net::DeadlineAfter(seconds(20)));
    EXPECT_TRUE(meeting.Meet(starters[1].card));
  });
  const auto store = Store();
  RendezvousProtocol meeting(starters[0].config, store.get(), net::DeadlineAfter(seconds(2)));
  ASSERT_TRUE(meeting.Meet(starters[0].card));
  const auto gathered = meeting.Gather("shm", {1});
  other.join();
  ASSERT_FALSE(gathered);
  EXPECT_THAT(
      gathered.error().message,
      HasSubstr(fmt::format("rank 1 (pid {} on here) of 2 came to {} and did not get ready", getpid(), where_)));
}

}  // namespace
}  // namespace hvd::engine::bootstrap
