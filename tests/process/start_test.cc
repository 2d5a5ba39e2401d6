// SPDX-License-Identifier: Apache-2.0
// hvd_init that cannot succeed: who is missing, who differs, what is in the way. Every error says so in words, on every
// rank that can know, in bounded time.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "hvd/hvd.h"
#include "hvd/net/socket.h"
#include "hvd/rendezvous/tcp/endpoint.h"
#include "tests/support/job.h"

namespace hvd::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int status;
  char text[2048];
  int32_t place[4];
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// Processes that each call hvd_init with variables of their own.
class Start : public ::testing::Test {
 protected:
  Start() {
    char folder[] = "/tmp/hvd-start-XXXXXX";
    EXPECT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    store_ = "file://" + folder_ + "/store";
    outcomes_ = static_cast<Outcome*>(
        mmap(nullptr, kMost * sizeof(Outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~Start() override {
    munmap(outcomes_, kMost * sizeof(Outcome));
    std::filesystem::remove_all(folder_);
  }

  int Launch(const Variables& variables) {
    const int index = count_++;
    const int pid = fork();
    if (pid != 0) {
      pids_.push_back(pid);
      return pid;
    }
    if (user_ != 0 && setresuid(user_, user_, user_) != 0) _exit(1);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    Outcome& outcome = outcomes_[index];
    outcome.status = hvd_init(nullptr, nullptr);
    if (outcome.status != HVD_OK) {
      strncpy(outcome.text, hvd_last_error(), sizeof outcome.text - 1);
      _exit(0);
    }
    const int32_t what[] = {HVD_LOCAL_RANK, HVD_LOCAL_SIZE, HVD_CROSS_RANK, HVD_CROSS_SIZE};
    for (int i = 0; i < 4; ++i) hvd_query(nullptr, what[i], &outcome.place[i]);
    float one = 1;
    outcome.status = Sum(nullptr, "one", &one, 1);
    hvd_shutdown(nullptr);
    _exit(0);
  }
  int LaunchRank(int rank, int size, const std::string& where, Variables more = {}) {
    more.insert(more.begin(), {{"HOROVOD_RANK", std::to_string(rank)},
                               {"HOROVOD_SIZE", std::to_string(size)},
                               {"HOROVOD_RENDEZVOUS_ADDR", where},
                               {"HOROVOD_START_TIMEOUT", "20"}});
    return Launch(more);
  }
  // Waits for all that were launched; their outcomes in order.
  std::vector<Outcome> Join() {
    for (int pid : pids_) waitpid(pid, nullptr, 0);
    std::vector<Outcome> outcomes(outcomes_, outcomes_ + count_);
    std::memset(static_cast<void*>(outcomes_), 0, kMost * sizeof(Outcome));
    pids_.clear();
    count_ = 0;
    return outcomes;
  }
  void ExpectAllWell() {
    for (const Outcome& outcome : Join()) EXPECT_EQ(outcome.status, HVD_OK) << outcome.text;
  }
  std::string Error(const Variables& variables) {
    Launch(variables);
    const Outcome outcome = Join()[0];
    EXPECT_NE(outcome.status, HVD_OK);
    return outcome.text;
  }
  std::string WriteFile(const std::string& name, const std::string& text, int mode = 0600) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), static_cast<mode_t>(mode));
    return path;
  }
  // Returns when this rank waits for rank 0's verdict.
  static void AwaitCard(const std::string& where, int rank) {
    hvd_store* store = nullptr;
    ASSERT_EQ(hvd_store_connect(where.c_str(), nullptr, 20, &store), HVD_OK) << hvd_last_error();
    char job[4096] = {};
    uint64_t bytes = 0;
    ASSERT_EQ(hvd_store_get(store, "hvd/0/job", 20, job, sizeof job - 1, &bytes), HVD_OK) << hvd_last_error();
    std::string name = job;
    name = name.substr(name.find('\n') + 1);
    name = name.substr(0, name.find('\n'));
    const std::string key = "hvd/0/" + name + "/card/" + std::to_string(rank);
    ASSERT_EQ(hvd_store_get(store, key.c_str(), 20, nullptr, 0, &bytes), HVD_OK) << hvd_last_error();
    hvd_store_free(store);
  }

  static constexpr int kMost = 8;
  const std::string token_text_ = std::string(64, 'a') + "\n";
  std::string folder_, store_;
  Outcome* outcomes_ = nullptr;
  std::vector<int> pids_;
  int count_ = 0;
  uid_t user_ = 0;  // of those that are launched; 0: this one
};

TEST_F(Start, AFolderServesOneJobAfterTheOther) {
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < 2; ++rank) LaunchRank(rank, 2, store_);
    ExpectAllWell();
  }
}

TEST_F(Start, AFolderOfKilledJobsServesTheNext) {
  LaunchRank(0, 3, store_);
  LaunchRank(1, 3, store_);
  mkdir((folder_ + "/store").c_str(), 0700);
  AwaitCard(store_, 1);
  for (int pid : pids_) kill(pid, SIGKILL);
  Join();
  for (int rank = 1; rank >= 0; --rank) LaunchRank(rank, 2, store_);
  ExpectAllWell();
}

TEST_F(Start, MissingRanksAreNamedOnAllThatCame) {
  for (const std::string& where : {store_, "127.0.0.1:" + std::to_string(FreePort())}) {
    // Rank 0's time ends first, and what it says reaches the other.
    LaunchRank(0, 4, where, {{"HOROVOD_START_TIMEOUT", "2"}});
    LaunchRank(1, 4, where);
    for (const Outcome& outcome : Join()) {
      EXPECT_EQ(outcome.status, HVD_DEADLINE_EXCEEDED);
      EXPECT_THAT(outcome.text, AllOf(HasSubstr("ranks 2, 3 of 4 did not come to " + where + " within 2 s"),
                                      HasSubstr("(2 came)"), Not(HasSubstr("hvd/"))));
    }
  }
}

TEST_F(Start, DifferencesAreToldToAllOverEveryStore) {
  const std::string token = WriteFile("token", token_text_);
  const std::string other_token = WriteFile("other", std::string(64, 'b'));
  struct Case {
    bool over_tcp;
    Variables first, second;
    std::string text;
  };
  const std::vector<Case> cases{
      {true, {}, {{"HOROVOD_SIZE", "3"}}, "HOROVOD_SIZE differs: 2 on rank 0"},
      {false, {}, {{"HOROVOD_SIZE", "3"}}, "HOROVOD_SIZE differs: 2 on rank 0"},
      {true, {}, {{"HOROVOD_ENCRYPT", "1"}}, "HOROVOD_ENCRYPT differs: 0 on rank 0"},
      {false, {{"HOROVOD_TOKEN_FILE", token}}, {}, "job tokens differ: rank 0"},
      {false, {}, {{"HOROVOD_TOKEN_FILE", token}}, "job tokens differ: rank 0"},
      {false, {{"HOROVOD_TOKEN_FILE", token}}, {{"HOROVOD_TOKEN_FILE", other_token}}, "job tokens differ: rank 0"},
      {true, {}, {{"HOROVOD_INSECURE", "1"}}, "job tokens differ: rank 0"},
      {true, {}, {{"HOROVOD_RANK", "0"}}, "rank 0 was given twice"},
      {false, {}, {{"HOROVOD_RANK", "0"}}, "rank 0 was given twice"},
  };
  for (const Case& one : cases) {
    const std::string where = one.over_tcp ? "127.0.0.1:" + std::to_string(FreePort()) : store_;
    LaunchRank(0, 2, where, one.first);
    LaunchRank(1, 2, where, one.second);
    for (const Outcome& outcome : Join()) EXPECT_THAT(outcome.text, HasSubstr(one.text));
  }
}

TEST_F(Start, TokensOfAServedStoreThatDifferAreAHintOnBothSides) {
  const std::string token = WriteFile("token", token_text_);
  const std::vector<std::pair<std::string, std::string>> cases{
      {token, ""}, {"", token}, {token, WriteFile("other", std::string(64, 'b'))}};
  for (const auto& [first, second] : cases) {
    const std::string where = "127.0.0.1:" + std::to_string(FreePort());
    // Rank 0 is there as long as rank 1 tries.
    const Variables quiet{{"HOROVOD_LOG_LEVEL", "fatal"}};
    LaunchRank(0, 2, where, {quiet[0], {"HOROVOD_START_TIMEOUT", "5"}, {"HOROVOD_TOKEN_FILE", first}});
    LaunchRank(1, 2, where, {quiet[0], {"HOROVOD_START_TIMEOUT", "3"}, {"HOROVOD_TOKEN_FILE", second}});
  }
  const auto outcomes = Join();
  for (size_t i = 0; i < outcomes.size(); i += 2) {
    EXPECT_THAT(outcomes[i].text, AllOf(HasSubstr("rank 1 of 2 did not come"), HasSubstr("HOROVOD_TOKEN_FILE")));
    EXPECT_THAT(outcomes[i + 1].text, HasSubstr("HOROVOD_TOKEN_FILE"));
  }
  EXPECT_THAT(outcomes[1].text, HasSubstr("is rank 0 running?"));
  EXPECT_THAT(outcomes[3].text, HasSubstr("is rank 0 running?"));
  EXPECT_THAT(outcomes[4].text, HasSubstr("another job token"));
  EXPECT_THAT(outcomes[5].text, HasSubstr("another job token"));
  EXPECT_EQ(outcomes[5].status, HVD_PERMISSION_DENIED);
}

TEST_F(Start, RanksOfTwoUsersAreToldSo) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  const std::string where = "127.0.0.1:" + std::to_string(FreePort());
  // Rank 0 is there as long as rank 1 tries.
  LaunchRank(0, 2, where, {{"HOROVOD_START_TIMEOUT", "3"}});
  user_ = 65534;
  LaunchRank(1, 2, where, {{"HOROVOD_START_TIMEOUT", "1.5"}});
  const auto outcomes = Join();
  EXPECT_THAT(outcomes[0].text, AllOf(HasSubstr("rank 1 of 2 did not come"), HasSubstr("runs as user 65534")));
  EXPECT_THAT(outcomes[1].text, AllOf(HasSubstr("a store of user 0 is there"), HasSubstr("runs as user 65534"),
                                      HasSubstr("HOROVOD_TOKEN_FILE")));
}

TEST_F(Start, ATakenPortIsNamed) {
  const int port = FreePort();
  const std::string where = "127.0.0.1:" + std::to_string(port);
  const auto listener = net::Listen(*rendezvous::tcp::LocalName(static_cast<uint16_t>(port)));
  ASSERT_TRUE(listener);
  LaunchRank(0, 2, where, {{"HOROVOD_START_TIMEOUT", "0.3"}});
  const auto outcomes = Join();
  EXPECT_EQ(outcomes[0].status, HVD_FAILED_PRECONDITION);
  EXPECT_THAT(outcomes[0].text,
              AllOf(HasSubstr("HOROVOD_RENDEZVOUS_ADDR=" + where), HasSubstr("is in use by another program or job")));
}

TEST_F(Start, AnAbsentRankZeroIsNamed) {
  const std::string where = "127.0.0.1:" + std::to_string(FreePort());
  LaunchRank(1, 2, where, {{"HOROVOD_START_TIMEOUT", "0.3"}});
  LaunchRank(1, 2, store_, {{"HOROVOD_START_TIMEOUT", "0.3"}});
  const auto outcomes = Join();
  EXPECT_THAT(outcomes[0].text, AllOf(HasSubstr("no store answered at " + where), HasSubstr("is rank 0 running?")));
  EXPECT_THAT(outcomes[1].text, HasSubstr("rank 0 of 2 did not come to " + store_));
}

TEST_F(Start, ARankZeroThatDiesIsNamedAtOnce) {
  for (const std::string& where : {store_, "127.0.0.1:" + std::to_string(FreePort())}) {
    const int victim = LaunchRank(0, 3, where, {{"HOROVOD_START_TIMEOUT", "3600"}});
    LaunchRank(1, 3, where, {{"HOROVOD_START_TIMEOUT", "3600"}});
    if (where == store_) mkdir((folder_ + "/store").c_str(), 0700);
    AwaitCard(where, 1);
    kill(victim, SIGKILL);
    // The test would not end if it took as long as it may.
    const Outcome outcome = Join()[1];
    EXPECT_EQ(outcome.status, HVD_UNKNOWN);
    EXPECT_THAT(outcome.text, AnyOf(HasSubstr("rank 0 (pid " + std::to_string(victim)), HasSubstr("did rank 0 end?")));
  }
}

TEST_F(Start, ARankZeroWithoutItsTokenTellsTheOthers) {
  const std::string token = WriteFile("token", token_text_);
  const std::string open = "127.0.0.1:" + std::to_string(FreePort());
  const std::string closed = "127.0.0.1:" + std::to_string(FreePort());
  struct Case {
    std::string where, token, text;
  };
  const std::vector<Case> cases{
      {store_, "", "of 2 cannot come to " + store_ + ": token file /nowhere"},
      {open, "", "of 2 cannot come to " + open + ": token file /nowhere"},
      // Without a token rank 0 cannot be believed more than that.
      {closed, token, "was rank 0 able to read it?"},
  };
  for (const Case& one : cases) {
    LaunchRank(1, 2, one.where, {{"HOROVOD_TOKEN_FILE", one.token}, {"HOROVOD_START_TIMEOUT", "3600"}});
    LaunchRank(0, 2, one.where, {{"HOROVOD_TOKEN_FILE", "/nowhere"}, {"HOROVOD_LOG_LEVEL", "fatal"}});
  }
  const auto outcomes = Join();
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_THAT(outcomes[2 * i].text, HasSubstr(cases[i].text));
    EXPECT_THAT(outcomes[2 * i + 1].text, HasSubstr("token file /nowhere"));
  }
}

TEST_F(Start, ARankThatDiesIsNamedAtOnceOnTheOthers) {
  const std::string where = "127.0.0.1:" + std::to_string(FreePort());
  LaunchRank(0, 4, where, {{"HOROVOD_START_TIMEOUT", "3600"}});
  const int victim = LaunchRank(1, 4, where, {{"HOROVOD_START_TIMEOUT", "3600"}});
  LaunchRank(2, 4, where, {{"HOROVOD_START_TIMEOUT", "3600"}});
  AwaitCard(where, 1);
  AwaitCard(where, 2);
  kill(victim, SIGKILL);
  const auto outcomes = Join();
  for (const int rank : {0, 2}) {
    EXPECT_THAT(outcomes[rank].text, HasSubstr("rank 1 (pid " + std::to_string(victim)));
  }
}

TEST_F(Start, AddressesOfEveryKindWork) {
  for (const std::string host : {"127.0.0.1", "[::1]", "localhost"}) {
    const std::string where = host + ":" + std::to_string(FreePort());
    for (int rank = 0; rank < 2; ++rank) LaunchRank(rank, 2, where);
    ExpectAllWell();
  }
}

TEST_F(Start, BadAddressesNameVariableAndValue) {
  for (const std::string bad : {"127.0.0.1", "127.0.0.1:0", "[::1]", "host:port", "tcp://a:1", "???", "file://x"}) {
    for (const char* rank : {"0", "1"}) {
      EXPECT_THAT(Error({{"HOROVOD_RANK", rank}, {"HOROVOD_SIZE", "2"}, {"HOROVOD_RENDEZVOUS_ADDR", bad}}),
                  HasSubstr("HOROVOD_RENDEZVOUS_ADDR=" + bad + " "));
    }
  }
  EXPECT_THAT(Error({{"HOROVOD_RANK", "0"},
                     {"HOROVOD_SIZE", "2"},
                     {"HOROVOD_TOKEN_FILE", WriteFile("token", token_text_)},
                     {"HOROVOD_RENDEZVOUS_ADDR", "192.0.2.1:29500"}}),
              AllOf(HasSubstr("HOROVOD_RENDEZVOUS_ADDR=192.0.2.1:29500"), HasSubstr("no address of this machine")));
}

TEST_F(Start, BadTokenFilesAreNamed) {
  mkfifo((folder_ + "/fifo").c_str(), 0600);
  mkdir((folder_ + "/directory").c_str(), 0700);
  const std::vector<std::pair<std::string, std::string>> cases{
      {folder_ + "/missing", "No such file"},
      {WriteFile("empty", ""), "is empty"},
      {WriteFile("nothex", std::string(64, 'x')), "no hexadecimal digit"},
      {WriteFile("short", "abcd"), "64 hexadecimal digits"},
      {WriteFile("long", std::string(100, 'a')), "64 hexadecimal digits"},
      {WriteFile("open", token_text_, 0644), "chmod 600"},
      {folder_ + "/directory", "is not a regular file"},
      {folder_ + "/fifo", "is not a regular file"},
  };
  for (const auto& [path, text] : cases) {
    for (const char* rank : {"0", "1"}) {
      EXPECT_THAT(Error({{"HOROVOD_RANK", rank},
                         {"HOROVOD_SIZE", "2"},
                         {"HOROVOD_RENDEZVOUS_ADDR", store_},
                         {"HOROVOD_START_TIMEOUT", "0.1"},
                         {"HOROVOD_TOKEN_FILE", path}}),
                  AllOf(HasSubstr(path), HasSubstr(text)));
    }
  }
}

TEST_F(Start, LaunchersPlaceIsReported) {
  for (int rank = 0; rank < 2; ++rank) {
    LaunchRank(rank, 2, store_,
               {{"HOROVOD_LOCAL_RANK", "0"},
                {"HOROVOD_LOCAL_SIZE", "1"},
                {"HOROVOD_CROSS_RANK", std::to_string(rank)},
                {"HOROVOD_CROSS_SIZE", "2"}});
  }
  const auto outcomes = Join();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(outcomes[rank].status, HVD_OK) << outcomes[rank].text;
    EXPECT_THAT(outcomes[rank].place, ::testing::ElementsAre(0, 1, rank, 2));
  }
  EXPECT_THAT(Error({{"HOROVOD_LOCAL_RANK", "1"}, {"HOROVOD_LOCAL_SIZE", "1"}}),
              HasSubstr("HOROVOD_LOCAL_RANK=1 is not below HOROVOD_LOCAL_SIZE=1"));
}

}  // namespace
}  // namespace hvd::test
