// SPDX-License-Identifier: Apache-2.0
// Many small operations at once, among ranks without shared memory: a few entries of the log do for all of them, on
// whatever method they begin, and all end when a rank goes in the middle.
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/engine/simulated_job.h"

namespace hvd::engine {
namespace {

constexpr int kBurst = 161;

class Bursts {
 public:
  explicit Bursts(int ranks, unsigned seed = 1)
      : job_({.hosts = HostsOf(ranks), .seed = seed}),
        data_(ranks, std::vector<std::vector<float>>(kBurst + 1, std::vector<float>(1))),
        ops_(ranks) {}
  ~Bursts() { Release(); }

  SimulatedJob& job() { return job_; }
  // How many entries of the log have executed something on rank 0. All operations on it were sequenced.
  uint64_t Entries() {
    const trace::Counters& counters = job_.engine(0).counters();
    return counters.operations.load() - counters.fusion_tensors.load() + counters.fusion_batches.load();
  }

  void Submit(int rank, int number) {
    std::vector<float>& value = data_[rank][number];
    value[0] = static_cast<float>(number + rank);
    ops_[rank].push_back(job_.Sum(rank, "t" + std::to_string(number), &value));
  }
  // Every rank submits all of them; `between` runs after each.
  void SubmitBurst(const std::function<void(int number)>& between) {
    for (int number = 0; number < kBurst; ++number) {
      for (int rank = 0; rank < job_.size(); ++rank) Submit(rank, number);
      between(number);
    }
  }
  bool Over(int rank) {
    return std::all_of(ops_[rank].begin(), ops_[rank].end(), [](const Operation* op) { return op->over.load(); });
  }
  bool AwaitAll(int ranks) {
    return job_.StepUntil([&] {
      for (int rank = 0; rank < ranks; ++rank) {
        if (!Over(rank)) return false;
      }
      return true;
    });
  }
  // Whether all that were submitted have the right sum.
  bool AreRight() {
    const int n = job_.size();
    for (int rank = 0; rank < n; ++rank) {
      for (size_t i = 0; i < ops_[rank].size(); ++i) {
        const int number = ops_[rank].size() == 1 ? kBurst : static_cast<int>(i);
        if (ops_[rank][i]->error.code != Code::kOk) return false;
        if (data_[rank][number][0] != static_cast<float>(n * number + n * (n - 1) / 2)) return false;
      }
    }
    return true;
  }
  const std::vector<Operation*>& ops(int rank) const { return ops_[rank]; }
  void Release() {
    for (int rank = 0; rank < job_.size(); ++rank) {
      for (Operation* op : ops_[rank]) job_.engine(rank).Release(op);
      ops_[rank].clear();
    }
  }

  bool Burst(int steps_between) {
    SubmitBurst([&](int) {
      for (int i = 0; i < steps_between; ++i) job_.Step();
    });
    const bool right = AwaitAll(job_.size()) && AreRight();
    Release();
    return right;
  }
  bool OneByItself() {
    for (int rank = 0; rank < job_.size(); ++rank) Submit(rank, kBurst);
    const bool right = AwaitAll(job_.size()) && AreRight();
    Release();
    return right;
  }

 private:
  static std::vector<std::string> HostsOf(int ranks) {
    std::vector<std::string> hosts;
    for (int rank = 0; rank < ranks; ++rank) hosts.emplace_back(1, static_cast<char>('a' + rank));
    return hosts;
  }

  SimulatedJob job_;
  std::vector<std::vector<std::vector<float>>> data_;
  std::vector<std::vector<Operation*>> ops_;
};

TEST(Burst, TakesFewEntriesHoweverItsOperationsAreSpreadInTime) {
  for (const int ranks : {2, 3, 4}) {
    for (const int steps_between : {0, 1, 3}) {
      Bursts bursts(ranks);
      ASSERT_TRUE(bursts.Burst(0));
      const uint64_t before = bursts.Entries();
      ASSERT_TRUE(bursts.Burst(steps_between));
      EXPECT_LT(bursts.Entries() - before, kBurst / 3) << ranks << " ranks, " << steps_between << " steps";
      EXPECT_EQ(bursts.job().marks(), 0);
    }
  }
}

TEST(Burst, OneThatBeginsByMailEndsWithTheSequencer) {
  Bursts bursts(3);
  ASSERT_TRUE(bursts.Burst(0));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(bursts.OneByItself());
  const int marks = bursts.job().marks();
  EXPECT_GT(marks, 0) << "those by themselves go by mark message";
  const uint64_t before = bursts.job().engine(0).counters().fusion_tensors.load();
  ASSERT_TRUE(bursts.Burst(0));
  EXPECT_GT(bursts.job().engine(0).counters().fusion_tensors.load() - before, kBurst * 9 / 10);
  EXPECT_LT(bursts.job().marks() - marks, 6 * 8) << "a few, and those that end the epoch";
}

TEST(Burst, OneOperationBetweenBurstsDoesNotBringThemBackToMail) {
  Bursts bursts(2);
  for (int step = 0; step < 30; ++step) {
    ASSERT_TRUE(bursts.Burst(1)) << step;
    ASSERT_TRUE(bursts.OneByItself()) << step;
  }
  EXPECT_EQ(bursts.job().marks(), 0);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(bursts.OneByItself());
  EXPECT_GT(bursts.job().marks(), 0) << "once there are no more bursts they go by mark message";
}

// The last rank goes when so many of a burst are submitted; nobody waits for ever, and errors name it.
void ExpectAllEnd(unsigned seed, const std::function<void(SimulatedJob&, Rank)>& go) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Bursts bursts(3, seed);
  ASSERT_TRUE(bursts.Burst(0));
  const int when = static_cast<int>(bursts.job().random()() % kBurst);
  for (int number = 0; number <= when; ++number) {
    for (int rank = 0; rank < (number < when ? 3 : 2); ++rank) bursts.Submit(rank, number);
    bursts.job().Step();
  }
  go(bursts.job(), 2);
  ASSERT_TRUE(bursts.AwaitAll(2)) << "waits for ever";
  for (int rank = 0; rank < 2; ++rank) {
    for (const Operation* op : bursts.ops(rank)) {
      EXPECT_TRUE(op->error.code == Code::kOk || op->error.rank == 2) << op->error.message;
    }
    EXPECT_NE(bursts.ops(rank).back()->error.code, Code::kOk);
  }
}

TEST(Burst, EndsWhenARankLeavesInTheMiddle) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    ExpectAllEnd(seed, [](SimulatedJob& job, Rank rank) { job.engine(rank).Shutdown(); });
  }
}

TEST(Burst, EndsWhenARankDiesInTheMiddle) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    ExpectAllEnd(seed, [](SimulatedJob& job, Rank rank) { job.Kill(rank); });
  }
}

}  // namespace
}  // namespace hvd::engine
