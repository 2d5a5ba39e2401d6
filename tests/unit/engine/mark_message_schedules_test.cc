// SPDX-License-Identifier: Apache-2.0
// Ranks that announce by mark message, in many orders of events: programs of all kinds of operations, small and large,
// known and new, on several process sets, in different order on each rank, one at a time and several at once. Every
// operation ends, with the right result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>

#include "tests/unit/engine/simulated_job.h"

namespace hvd::engine {
namespace {

float Cell(Rank rank, size_t i, unsigned seed) {
  return static_cast<float>(static_cast<int32_t>((seed * 2654435761u) ^ (rank * 40503u) ^ (i * 2246822519u))) * 1e-6f;
}

// An operation of a program, as all members of its set want it.
struct Wish {
  OpKind op = OpKind::kAllreduce;
  std::string name;
  int set = 0;
  size_t count = 1;  // floats or rows
  Rank root = 0;
  unsigned seed = 0;
};

struct Started {
  Wish wish;
  std::vector<float> input;
  std::vector<float> output;
  Operation* op = nullptr;
};

class Programs {
 public:
  Programs(int size, unsigned seed)
      : sets_(SetsOf(size)),
        hosts_(HostsOf(size, seed)),
        job_({.hosts = hosts_,
              .seed = seed,
              .sets = {sets_.begin() + 1, sets_.end()},
              .resume_policy = ResumePolicy(seed % 3 == 0 ? 8 : 1, 2)}),
        random_(seed + 7) {
    for (int round = 0; round < 60; ++round) rounds_.push_back(MakeRound(round));
    ranks_.resize(size);
  }

  void Run() {
    int idle = 0;
    while (!std::all_of(ranks_.begin(), ranks_.end(), [&](const Place& at) { return at.round == rounds_.size(); })) {
      job_.Step();
      const Rank rank = static_cast<Rank>(job_.random()() % ranks_.size());
      idle = Advance(rank) ? 0 : idle + 1;
      ASSERT_LT(idle, 300'000) << "rank 0 is in round " << ranks_[0].round << ", this one in " << ranks_[rank].round;
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GT(job_.marks(), 0);
  }

 private:
  struct Place {
    size_t round = 0;
    bool begun = false;
    std::deque<Wish> left;  // of this round
    std::deque<Started> started;
  };
  struct Round {
    std::vector<Wish> wishes;
    size_t depth = 1;
    bool shuffled = false;
  };

  static std::vector<std::vector<Rank>> SetsOf(int size) {
    std::vector<Rank> all;
    for (Rank rank = 0; rank < size; ++rank) all.push_back(rank);
    std::vector<std::vector<Rank>> sets{all};
    if (size > 2) sets.push_back({1, size - 1});
    if (size > 4) sets.push_back({0, 2, 3});
    return sets;
  }

  static std::vector<std::string> HostsOf(int size, unsigned seed) {
    std::vector<std::string> hosts;
    for (Rank rank = 0; rank < size; ++rank)
      hosts.emplace_back(1, static_cast<char>('a' + (seed % 2 ? rank : rank / 2)));
    return hosts;
  }

  Round MakeRound(int number) {
    constexpr OpKind kKinds[] = {OpKind::kAllgather, OpKind::kBroadcast, OpKind::kAlltoall, OpKind::kReducescatter,
                                 OpKind::kBarrier};
    Round round;
    const unsigned kind = random_() % 10;
    const size_t wishes = kind < 6 ? 6 : 1 + random_() % 8;
    for (size_t i = 0; i < wishes; ++i) {
      Wish wish;
      wish.set = random_() % 3 == 0 ? static_cast<int>(random_() % sets_.size()) : 0;
      wish.op = random_() % 3 == 0 ? kKinds[random_() % std::size(kKinds)] : OpKind::kAllreduce;
      wish.count = 1 + random_() % 50;
      wish.seed = random_();
      wish.root = sets_[wish.set][wish.seed % sets_[wish.set].size()];
      wish.name = std::to_string(static_cast<int>(wish.op)) + "." + std::to_string(i);
      if (wish.op == OpKind::kBroadcast) wish.name += "." + std::to_string(wish.root);
      // Names have one shape, but for the first dimension where that is free.
      if (wish.op == OpKind::kAllreduce || wish.op == OpKind::kBroadcast || wish.op == OpKind::kReducescatter) {
        wish.count = 8 + 3 * i;
      }
      if (kind == 9 && i % 4 == 1) {
        wish.count = 20'000;
        wish.name += ".large";
      }
      if (kind == 8 && i % 4 == 1) wish.name += ".new" + std::to_string(number);
      round.wishes.push_back(std::move(wish));
    }
    round.depth = kind < 6 ? 1 : 1 + random_() % 12;
    round.shuffled = kind == 7 && round.depth >= round.wishes.size();
    return round;
  }

  // Lets a rank's program do something; false: it waits.
  bool Advance(Rank rank) {
    Place& at = ranks_[rank];
    if (at.round == rounds_.size()) return false;
    const Round& round = rounds_[at.round];
    if (!at.begun) {
      at.begun = true;
      for (const Wish& wish : round.wishes) {
        if (std::ranges::count(sets_[wish.set], rank) > 0) at.left.push_back(wish);
      }
      if (round.shuffled) std::shuffle(at.left.begin(), at.left.end(), job_.random());
      return true;
    }
    for (auto started = at.started.begin(); started != at.started.end(); ++started) {
      if (!started->op->over.load()) continue;
      Check(rank, *started);
      job_.engine(rank).Forget(started->op->handle);
      job_.engine(rank).Release(started->op);
      at.started.erase(started);
      return true;
    }
    if (!at.left.empty() && at.started.size() < round.depth) {
      at.started.push_back({at.left.front(), {}, {}});
      at.left.pop_front();
      Start(rank, &at.started.back());
      return true;
    }
    if (!at.left.empty() || !at.started.empty()) return false;
    at.begun = false;
    ++at.round;
    return true;
  }

  int64_t RowsOf(const Wish& wish, Rank rank) const {
    if (wish.op == OpKind::kAllgather) return static_cast<int64_t>((wish.count + rank) % 7) * 3;
    if (wish.op == OpKind::kAlltoall) return static_cast<int64_t>(sets_[wish.set].size() * ((wish.count + rank) % 4));
    return static_cast<int64_t>(wish.count);
  }

  void Start(Rank rank, Started* started) {
    const Wish& wish = started->wish;
    Submission submission;
    submission.request.name = wish.name;
    submission.request.signature.op = wish.op;
    submission.request.signature.root = wish.op == OpKind::kBroadcast ? wish.root : -1;
    submission.process_set = wish.set;
    if (wish.op != OpKind::kBarrier) {
      submission.request.signature.shape = {RowsOf(wish, rank)};
      for (int64_t i = 0; i < RowsOf(wish, rank); ++i) started->input.push_back(Cell(rank, i, wish.seed));
      started->output.resize(Expected(rank, wish).size() + 1);
      submission.input = started->input.data();
      submission.input_bytes = started->input.size() * sizeof(float);
      submission.output = started->output.data();
      submission.output_bytes = (started->output.size() - 1) * sizeof(float);
    }
    started->op = job_.Submit(rank, std::move(submission));
  }

  std::vector<float> Summed(const Wish& wish) const {
    std::vector<float> sum(wish.count);
    for (size_t i = 0; i < sum.size(); ++i) {
      bool any = false;
      for (size_t first = 0; first < sets_[wish.set].size();) {
        const std::string& host = hosts_[sets_[wish.set][first]];
        float of_host = Cell(sets_[wish.set][first++], i, wish.seed);
        while (first < sets_[wish.set].size() && hosts_[sets_[wish.set][first]] == host) {
          of_host += Cell(sets_[wish.set][first++], i, wish.seed);
        }
        sum[i] = any ? sum[i] + of_host : of_host;
        any = true;
      }
    }
    return sum;
  }

  std::vector<float> Expected(Rank rank, const Wish& wish) const {
    const std::vector<Rank>& members = sets_[wish.set];
    const size_t me = std::ranges::find(members, rank) - members.begin();
    std::vector<float> result;
    switch (wish.op) {
      case OpKind::kAllreduce:
        return Summed(wish);
      case OpKind::kBroadcast:
        for (size_t i = 0; i < wish.count; ++i) result.push_back(Cell(wish.root, i, wish.seed));
        return result;
      case OpKind::kAllgather:
        for (const Rank member : members) {
          for (int64_t i = 0; i < RowsOf(wish, member); ++i) result.push_back(Cell(member, i, wish.seed));
        }
        return result;
      case OpKind::kAlltoall:
        for (const Rank member : members) {
          const size_t part = RowsOf(wish, member) / members.size();
          for (size_t i = me * part; i < (me + 1) * part; ++i) result.push_back(Cell(member, i, wish.seed));
        }
        return result;
      case OpKind::kReducescatter: {
        const std::vector<float> sum = Summed(wish);
        size_t begin = 0;
        for (size_t m = 0; m < members.size(); ++m) {
          const size_t part = wish.count / members.size() + (m < wish.count % members.size());
          if (m == me) result.assign(sum.begin() + begin, sum.begin() + begin + part);
          begin += part;
        }
        return result;
      }
      default:
        return result;
    }
  }

  void Check(Rank rank, const Started& started) {
    ASSERT_EQ(started.op->error.code, Code::kOk) << started.op->error.message;
    if (started.wish.op == OpKind::kBarrier) return;
    const std::vector<float> expected = Expected(rank, started.wish);
    ASSERT_EQ(started.output.back(), 0.f);
    ASSERT_EQ(std::vector<float>(started.output.begin(), started.output.end() - 1), expected)
        << started.wish.name << " of set " << started.wish.set << " on rank " << rank;
  }

  const std::vector<std::vector<Rank>> sets_;
  const std::vector<std::string> hosts_;
  SimulatedJob job_;
  std::mt19937 random_;
  std::vector<Round> rounds_;
  std::vector<Place> ranks_;
};

// HVD_TEST_SEEDS: more than a test run has time for.
unsigned Seeds() {
  const char* const seeds = getenv("HVD_TEST_SEEDS");
  return seeds != nullptr ? static_cast<unsigned>(atoi(seeds)) : 12;
}

class MarkMessageSchedules : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MarkMessageSchedules, ::testing::Values(2, 3, 5, 8, 9, 13));

TEST_P(MarkMessageSchedules, EveryOperationEndsWithTheRightResult) {
  for (unsigned seed = 0; seed < Seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Programs(GetParam(), seed).Run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace hvd::engine
