// SPDX-License-Identifier: Apache-2.0
// Small operations that ranks without shared memory announce to each other by mark message: what is sent, and what
// happens when ranks leave, die, are late or say what they cannot mean. mark_message_schedules_test.cc beside it tries
// orders of events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "hvd/wire/control.h"
#include "tests/unit/engine/simulated_job.h"

namespace hvd::engine {
namespace {

using ::testing::HasSubstr;

const ResumePolicy kAtOnce(1, 1);

// More than send to each other: marks are handed on.
SimulatedJob::Options Eleven() {
  SimulatedJob::Options options{.resume_policy = kAtOnce};
  for (char host = 'a'; host <= 'k'; ++host) options.hosts.emplace_back(1, host);
  return options;
}

// Ranks that each sum what they have, one float unless said otherwise.
class Members {
 public:
  explicit Members(SimulatedJob::Options options) : job_(options), values_(job_.size()) {
    values_.assign(job_.size(), {0});
  }
  ~Members() {
    for (auto& [op, rank] : ops_) job_.engine(rank).Release(op);
  }

  SimulatedJob& job() { return job_; }
  float value(Rank rank) const { return values_[rank][0]; }
  std::vector<float>& data(Rank rank) { return values_[rank]; }

  Operation* Sum(Rank rank, const std::string& name, double timeout_s = 0) {
    values_[rank].assign(1, static_cast<float>(rank + 1));
    return Keep(job_.Sum(rank, name, &values_[rank], 0, timeout_s), rank);
  }
  Operation* Keep(Operation* op, Rank rank) {
    ops_.emplace_back(op, rank);
    return op;
  }
  std::vector<Operation*> SumWithout(Rank absent, const std::string& name, double timeout_s = 0) {
    std::vector<Operation*> ops;
    for (Rank rank = 0; rank < job_.size(); ++rank) {
      if (rank != absent) ops.push_back(Sum(rank, name, timeout_s));
    }
    return ops;
  }
  // Of all ranks; whether all have the right sum.
  bool Round(const std::string& name) {
    std::vector<Operation*> ops;
    for (Rank rank = 0; rank < job_.size(); ++rank) ops.push_back(Sum(rank, name));
    if (!Await(ops)) return false;
    const float sum = static_cast<float>(job_.size() * (job_.size() + 1) / 2);
    for (Rank rank = 0; rank < job_.size(); ++rank) {
      if (ops[rank]->error.code != Code::kOk || value(rank) != sum) return false;
    }
    return true;
  }
  bool Rounds(const std::string& name, int count) {
    while (count > 0 && Round(name)) --count;
    return count == 0;
  }
  bool Await(const std::vector<Operation*>& ops) {
    return job_.StepUntil(
        [&] { return std::all_of(ops.begin(), ops.end(), [](Operation* op) { return op->over.load(); }); });
  }
  // Everything that was sent has arrived, and has been looked at.
  void Settle() {
    for (int i = 0; i < 2000; ++i) job_.Step();
  }

 private:
  SimulatedJob job_;
  std::vector<std::vector<float>> values_;
  std::vector<std::pair<Operation*, Rank>> ops_;
};

TEST(MarkMessages, ASmallOperationTakesOneMessageEachWayAndNoneElse) {
  Members members({.hosts = {"a", "b", "c"}});
  ASSERT_TRUE(members.Rounds("x", 8));
  EXPECT_EQ(members.job().marks(), 0) << "the first ones are sequenced";
  ASSERT_TRUE(members.Rounds("x", 2));
  members.Settle();
  const int marks = members.job().marks();
  const int messages = members.job().messages();
  ASSERT_TRUE(members.Rounds("x", 50));
  EXPECT_EQ(members.job().marks() - marks, 50 * 3 * 2);
  EXPECT_EQ(members.job().messages() - messages, 50 * 3 * 2);
}

TEST(MarkMessages, AmongManyAMemberSendsAsManyMessagesAsTheirNumberHasDigits) {
  Members members(Eleven());
  ASSERT_TRUE(members.Rounds("x", 5));
  members.Settle();
  const int marks = members.job().marks();
  const int messages = members.job().messages();
  ASSERT_TRUE(members.Rounds("x", 50));
  EXPECT_EQ(members.job().marks() - marks, 50 * 11 * 4);
  EXPECT_EQ(members.job().messages() - messages, 50 * 11 * 4);
}

TEST(MarkMessages, LargeOperationsInBetweenKeepItSequenced) {
  Members members({.hosts = {"a", "b"}});
  std::vector<float> large[2];
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(members.Rounds("x", 5));
    std::vector<Operation*> ops;
    for (Rank rank = 0; rank < 2; ++rank) {
      large[rank].assign(100'000, 1.f);
      ops.push_back(members.Keep(members.job().Sum(rank, "large", &large[rank]), rank));
    }
    ASSERT_TRUE(members.Await(ops));
    EXPECT_EQ(large[1][99'999], 2.f);
  }
  EXPECT_EQ(members.job().marks(), 0);
}

class MarkMessagesOf : public ::testing::TestWithParam<std::vector<std::string>> {};
INSTANTIATE_TEST_SUITE_P(Hosts, MarkMessagesOf,
                         ::testing::Values(std::vector<std::string>{"a", "a", "b", "c", "b"},
                                           std::vector<std::string>{"a", "b", "a", "c", "c", "d", "d", "d", "d", "e"}));

TEST_P(MarkMessagesOf, SumsHaveTheBitsOfTheSequencedRoad) {
  const auto run = [&](const std::string& algorithms, int* marks) {
    Members members({.hosts = GetParam(), .algorithms = algorithms, .resume_policy = kAtOnce});
    const int size = members.job().size();
    std::vector<std::vector<float>> results;
    for (const size_t count : {1, 2, 7, 1000, 4096}) {
      for (int round = 0; round < 4; ++round) {
        std::vector<std::vector<float>> data(size, std::vector<float>(count));
        std::vector<Operation*> ops;
        for (Rank rank = 0; rank < size; ++rank) {
          std::mt19937 random(static_cast<unsigned>(rank * 1000 + round));
          for (float& value : data[rank]) value = static_cast<float>(static_cast<int32_t>(random())) * 1e-7f;
          ops.push_back(members.Keep(members.job().Sum(rank, "s" + std::to_string(count), &data[rank]), rank));
        }
        EXPECT_TRUE(members.Await(ops));
        for (auto& result : data) results.push_back(std::move(result));
      }
    }
    *marks = members.job().marks();
    return results;
  };
  int without = 0;
  int with = 0;
  const auto expected = run("allreduce:any:one_step=none", &without);
  const auto results = run("", &with);
  EXPECT_EQ(without, 0);
  EXPECT_GT(with, 100);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::memcmp(expected[i].data(), results[i].data(), expected[i].size() * sizeof(float)), 0) << i;
  }
}

// The sequencer has seen the end of an epoch and resumed; this rank lacks the mark that ended it.
TEST(MarkMessages, TheLogWaitsForAMarkThatIsLate) {
  Members members({.hosts = {"a", "b", "c"}, .resume_policy = kAtOnce});
  ASSERT_TRUE(members.Rounds("x", 5));
  ASSERT_TRUE(members.Rounds("y", 3));
  members.Settle();
  members.job().Hold(2, 1, true);
  std::vector<Operation*> ops;
  for (Rank rank = 0; rank < 3; ++rank) ops.push_back(members.Sum(rank, "new"));
  members.Settle();
  std::vector<std::vector<float>> more(6, {1.f});
  for (size_t i = 0; i < more.size(); ++i) {
    const Rank rank = static_cast<Rank>(i % 3);
    ops.push_back(members.Keep(members.job().Sum(rank, i < 3 ? "x" : "y", &more[i]), rank));
    if (rank == 2) members.Settle();
  }
  for (size_t i = 0; i < ops.size(); ++i) EXPECT_EQ(ops[i]->over.load(), i < 6 && i % 3 != 1) << i;
  members.job().Hold(2, 1, false);
  ASSERT_TRUE(members.Await(ops)) << "waits for ever";
  for (const Operation* op : ops) EXPECT_EQ(op->error.code, Code::kOk) << op->error.message;
  ASSERT_TRUE(members.Rounds("x", 5));
}

TEST(MarkMessages, WhatALeaverAgreedToGoesOn) {
  Members members({.hosts = {"a", "b", "c"}, .resume_policy = kAtOnce});
  ASSERT_TRUE(members.Rounds("x", 5));
  members.Settle();
  members.job().Hold(0, 1, true);
  Operation* first = members.Sum(0, "x");
  Operation* late = members.Sum(1, "x");
  Operation* last = members.Sum(2, "x");
  ASSERT_TRUE(members.Await({first, last}));
  members.job().engine(2).Shutdown();
  members.Settle();
  EXPECT_FALSE(late->over.load());
  members.job().Hold(0, 1, false);
  ASSERT_TRUE(members.Await({late}));
  EXPECT_EQ(late->error.code, Code::kOk) << late->error.message;
  EXPECT_EQ(members.value(1), 6.f);
  Operation* after = members.Sum(1, "x");
  ASSERT_TRUE(members.Await({after}));
  EXPECT_EQ(after->error.rank, 2) << after->error.message;
}

// Its last message overtakes its mark, which others hand on.
TEST(MarkMessages, WhatALeaverAgreedToGoesOnWhereMarksAreHandedOn) {
  Members members(Eleven());
  ASSERT_TRUE(members.Rounds("x", 5));
  members.Settle();
  members.job().Hold(8, 5, true);  // the marks of 8, 7 and 6
  const std::vector<Operation*> others = members.SumWithout(5, "x");
  Operation* late = members.Sum(5, "x");
  ASSERT_TRUE(members.Await(others));
  members.job().engine(6).Shutdown();
  members.Settle();
  members.job().engine(7).Shutdown();
  members.Settle();
  EXPECT_FALSE(late->over.load());
  members.job().Hold(8, 5, false);
  ASSERT_TRUE(members.Await({late}));
  EXPECT_EQ(late->error.code, Code::kOk) << late->error.message;
  EXPECT_EQ(members.value(5), 66.f);
  Operation* after = members.Sum(5, "x");
  ASSERT_TRUE(members.Await({after}));
  EXPECT_EQ(after->error.rank, 6) << after->error.message;
}

TEST(MarkMessages, OneAmongManyThatIsMissingIsNamedAlone) {
  Members members(Eleven());
  ASSERT_TRUE(members.Rounds("x", 5));
  const std::vector<Operation*> ops = members.SumWithout(5, "x", 1.0);
  members.Settle();
  members.job().AdvanceClock(std::chrono::seconds(2));
  ASSERT_TRUE(members.Await(ops));
  for (const Operation* op : ops) EXPECT_THAT(op->error.message, HasSubstr("out: rank 5 has not submitted it"));
}

// Those whose marks lie with it have the result, and know nothing of the operation any more.
TEST(MarkMessages, OneAmongManyThatNeitherHandsOnNorAnswersIsNamedAlone) {
  Members members(Eleven());
  ASSERT_TRUE(members.Rounds("x", 5));
  members.Settle();
  members.job().Hold(8, 5, true);  // the marks of 8, 7 and 6
  const std::vector<Operation*> others = members.SumWithout(5, "x");
  Operation* late = members.Sum(5, "x", 1.0);
  ASSERT_TRUE(members.Await(others));
  for (int second = 0; second < 2; ++second) {
    members.job().AdvanceClock(std::chrono::seconds(1));
    members.Settle();
  }
  ASSERT_TRUE(members.Await({late}));
  EXPECT_THAT(late->error.message, HasSubstr("out: rank 8 has not submitted it"));
}

TEST(MarkMessages, ADeadOneAmongManyIsNamed) {
  Members members(Eleven());
  ASSERT_TRUE(members.Rounds("x", 5));
  const std::vector<Operation*> ops = members.SumWithout(5, "x");
  members.Settle();
  members.job().Kill(5);
  ASSERT_TRUE(members.Await(ops));
  for (const Operation* op : ops) EXPECT_EQ(op->error.rank, 5) << op->error.message;
}

// Two of three have asked for a sum when the third one goes.
void ExpectTheThirdIsNamed(const std::function<void(SimulatedJob&)>& go) {
  Members members({.hosts = {"a", "b", "c"}, .resume_policy = kAtOnce});
  ASSERT_TRUE(members.Rounds("x", 5));
  Operation* first = members.Sum(0, "x");
  Operation* second = members.Sum(1, "x");
  members.Settle();
  go(members.job());
  ASSERT_TRUE(members.Await({first, second}));
  EXPECT_EQ(first->error.rank, 2) << first->error.message;
  EXPECT_EQ(second->error.rank, 2) << second->error.message;
}

TEST(MarkMessages, WhatALeaverDidNotAgreeToFails) {
  ExpectTheThirdIsNamed([](SimulatedJob& job) { job.engine(2).Shutdown(); });
}

TEST(MarkMessages, ADeadMemberIsNamed) {
  ExpectTheThirdIsNamed([](SimulatedJob& job) { job.Kill(2); });
}

TEST(MarkMessages, OneThatTimesOutNamesTheMissingAndGivesItsDataLater) {
  Members members({.hosts = {"a", "b"}, .resume_policy = kAtOnce});
  ASSERT_TRUE(members.Rounds("x", 5));
  Operation* early = members.Sum(0, "x", 1.0);
  members.Settle();
  EXPECT_FALSE(early->over.load());
  members.job().AdvanceClock(std::chrono::seconds(2));
  ASSERT_TRUE(members.Await({early}));
  EXPECT_EQ(early->error.code, Code::kDeadlineExceeded);
  EXPECT_THAT(early->error.message, HasSubstr("rank 1 has not submitted it"));
  members.data(0)[0] = 77;  // the caller's again
  Operation* late = members.Sum(1, "x");
  ASSERT_TRUE(members.Await({late}));
  EXPECT_EQ(late->error.code, Code::kOk) << late->error.message;
  EXPECT_EQ(members.value(1), 3.f);
  members.Settle();
  EXPECT_EQ(members.value(0), 77.f);
  EXPECT_TRUE(members.Rounds("x", 5));
}

TEST(MarkMessages, OthersGoOnWhileOneHasJoined) {
  Members members({.hosts = {"a", "b", "c"}, .resume_policy = kAtOnce});
  const auto join = [&](Rank rank) {
    Submission submission;
    submission.request.signature.op = OpKind::kJoin;
    return members.Keep(members.job().Submit(rank, std::move(submission)), rank);
  };
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(members.Rounds("x", 5));
    std::vector<Operation*> joins{join(1)};
    for (int i = 0; i < 3; ++i) {
      Operation* first = members.Sum(0, "x");
      Operation* third = members.Sum(2, "x");
      ASSERT_TRUE(members.Await({first, third})) << i;
      EXPECT_EQ(members.value(0), 4.f);
    }
    joins.push_back(join(0));
    joins.push_back(join(2));
    ASSERT_TRUE(members.Await(joins));
    EXPECT_EQ(joins[0]->error.code, Code::kOk) << joins[0]->error.message;
  }
  EXPECT_GT(members.job().marks(), 0);
}

TEST(MarkMessages, MarksThatNobodyCanHavePutEndTheJobWithAWord) {
  struct Lie {
    uint64_t ahead;
    uint64_t uid;
    size_t bytes;
    const char* text;
  };
  for (const Lie& lie : {Lie{1, 1, 4, "out of turn"}, Lie{1000, 1, 4, "out of turn"}, Lie{0, 1, 3, "where 4 are due"},
                         Lie{0, 1, 0, "where 4 are due"}}) {
    Members members({.hosts = {"a", "b"}, .resume_policy = kAtOnce});
    ASSERT_TRUE(members.Rounds("x", 5));
    members.Settle();
    const auto position = static_cast<uint64_t>(members.job().wire(1, 0).marks);
    ASSERT_GT(position, 0u);
    const std::vector<std::byte> data(lie.bytes);
    members.job().pair(1, 0).SendMessage(
        wire::Encode(wire::MarkMessage{0, 0, position + lie.ahead, {{lie.uid, 0, data}}}));
    Operation* op = members.Sum(0, "x");
    ASSERT_TRUE(members.Await({op}));
    EXPECT_NE(op->error.code, Code::kOk);
    EXPECT_EQ(op->error.rank, 1);
    EXPECT_THAT(op->error.message, HasSubstr(lie.text));
  }
}

}  // namespace
}  // namespace hvd::engine
