// SPDX-License-Identifier: Apache-2.0
// Sizes and waits that change again and again while ranks work: every operation of a random program has the bits that
// it has without. Run once more over TCP and on several hosts.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>

#include "hvd/c_api/context.h"
#include "tests/support/job.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

// An operation as all members of its set want it.
struct Wish {
  int op = HVD_ALLREDUCE;
  std::string name;
  int set = 0;
  int64_t rows = 1;
  int32_t root = 0;
  bool arena = false;
  bool asks = false;  // for its output's memory, by a callback
  unsigned seed = 0;
};
using Round = std::vector<Wish>;

std::vector<std::vector<int>> SetsOf(int size) {
  if (size == 2) return {};
  return {{0, size - 1}, {1, size - 1}};
}

bool Includes(int size, int set, int rank) {
  if (set == 0) return true;
  const auto ranks = SetsOf(size)[set - 1];
  return std::ranges::find(ranks, rank) != ranks.end();
}

std::vector<Round> MakeProgram(int size, unsigned seed) {
  constexpr int kOps[] = {HVD_ALLREDUCE, HVD_ALLREDUCE, HVD_ALLREDUCE,    HVD_ALLGATHER,
                          HVD_BROADCAST, HVD_ALLTOALL,  HVD_REDUCESCATTER};
  constexpr int64_t kRows[] = {1, 7, 300, 1500, 5000, 9000, 20'000, 70'003};
  std::mt19937 random(seed);
  std::vector<Round> rounds(80);
  for (Round& round : rounds) {
    const size_t wishes = 1 + random() % 6;
    for (size_t i = 0; i < wishes; ++i) {
      Wish wish;
      wish.op = kOps[random() % std::size(kOps)];
      wish.set = random() % 3 == 0 ? static_cast<int>(random() % (SetsOf(size).size() + 1)) : 0;
      wish.rows = kRows[random() % std::size(kRows)];
      wish.root = wish.set == 0 ? static_cast<int32_t>(random() % size) : SetsOf(size)[wish.set - 1][0];
      wish.arena = random() % 2 == 0;
      wish.asks = random() % 2 == 0;
      wish.seed = random();
      wish.name = fmt::format("{}.{}.{}.{}.{}", wish.op, wish.set, wish.rows, wish.root, i);
      round.push_back(wish);
    }
  }
  return rounds;
}

std::vector<float> InputOf(const Wish& wish, int rank) {
  int64_t rows = wish.rows;
  if (wish.op == HVD_ALLGATHER) rows += 3 * rank;
  if (wish.op == HVD_ALLTOALL) rows = 12 * std::min<int64_t>(rows, 5000);  // any number of members shares that
  std::mt19937 random(wish.seed + static_cast<unsigned>(rank));
  std::vector<float> input(static_cast<size_t>(rows));
  for (float& value : input) value = static_cast<float>(static_cast<int32_t>(random())) * 1e-7f;
  return input;
}

// One operation under way, with its memory.
class Begun {
 public:
  Begun(const Wish& wish, int rank)
      : input_(InputOf(wish, rank)), request_(wish.op, wish.name, {static_cast<int64_t>(input_.size())}) {
    const uint64_t bytes = input_.size() * sizeof(float);
    float* data = input_.data();
    if (wish.arena) {
      arena_ = static_cast<float*>(hvd_alloc(bytes));
      std::ranges::copy(input_, arena_);
      data = arena_;
    }
    request_->input = {data, bytes, HVD_CPU, 0};
    if (wish.op == HVD_ALLREDUCE || wish.op == HVD_BROADCAST) request_->output = request_->input;
    request_->process_set = wish.set;
    request_->root_rank = wish.root;
    if (wish.asks && request_->output.data == nullptr) {
      request_->alloc = [](void* arg, uint64_t wanted, const int64_t*, int32_t) -> void* {
        auto* answer = static_cast<std::vector<float>*>(arg);
        answer->resize(wanted / sizeof(float) + 1);
        return answer->data();
      };
      request_->alloc_arg = &answer_;
    }
  }
  ~Begun() {
    if (arena_ != nullptr) hvd_free(arena_);
  }
  Begun(const Begun&) = delete;

  std::vector<float> Run(hvd_context* ctx) {
    hvd_output output = EmptyOutput();
    EXPECT_EQ(hvd_run(ctx, request_, &output), HVD_OK) << hvd_last_error();
    return Take(output);
  }
  void Submit(hvd_context* ctx) { EXPECT_EQ(hvd_submit(ctx, request_, &handle_), HVD_OK) << hvd_last_error(); }
  std::vector<float> Wait(hvd_context* ctx) {
    hvd_output output = EmptyOutput();
    EXPECT_EQ(hvd_wait(ctx, handle_, -1), HVD_OK) << hvd_last_error();
    EXPECT_EQ(hvd_get_output(ctx, handle_, &output), HVD_OK) << hvd_last_error();
    std::vector<float> result = Take(output);
    EXPECT_EQ(hvd_release(ctx, handle_), HVD_OK);
    return result;
  }

 private:
  static std::vector<float> Take(const hvd_output& output) {
    const auto* data = static_cast<const float*>(output.data);
    std::vector<float> values(data, data + output.bytes / sizeof(float));
    if (output.engine_owned) hvd_free(output.data);
    return values;
  }

  std::vector<float> input_;
  float* arena_ = nullptr;
  std::vector<float> answer_;  // to alloc
  Request request_;
  hvd_handle handle_ = 0;
};

wire::Tuning AnyTuning(std::mt19937* random) {
  constexpr int32_t kPercents[] = {7, 25, 50, 100, 200, 400};
  constexpr int64_t kEagers[] = {0, 1000, 4096, 20'000, wire::Tuning::kMostEager};
  constexpr int64_t kSpins[] = {0, 5, 100, wire::Tuning::kMostSpin};
  return {kPercents[(*random)() % std::size(kPercents)], kEagers[(*random)() % std::size(kEagers)],
          kSpins[(*random)() % std::size(kSpins)]};
}

// By rank: the result of every operation, in the order of the program.
using Results = std::vector<std::vector<std::vector<float>>>;

// Every other round one operation after the other; else all at once, in another order on every rank.
Results RunProgram(int size, const std::vector<Round>& program, bool tuned) {
  Results results(size);
  RunThreads(
      size,
      [&](int rank, hvd_context* ctx) {
        std::mt19937 random(static_cast<unsigned>(rank));
        const auto perhaps_tune = [&] {
          if (tuned && rank == 0 && random() % 2 == 0) ctx->engine.load()->Retune(AnyTuning(&random));
        };
        for (size_t number = 0; number < program.size(); ++number) {
          std::vector<std::unique_ptr<Begun>> begun;
          for (const Wish& wish : program[number]) {
            if (Includes(size, wish.set, rank)) begun.push_back(std::make_unique<Begun>(wish, rank));
          }
          if (number % 2 == 0) {
            for (const auto& one : begun) {
              perhaps_tune();
              results[rank].push_back(one->Run(ctx));
            }
            continue;
          }
          std::vector<Begun*> order;
          for (const auto& one : begun) order.push_back(one.get());
          if (number % 4 == 1) std::ranges::shuffle(order, random);
          for (Begun* one : order) {
            perhaps_tune();
            one->Submit(ctx);
          }
          for (const auto& one : begun) results[rank].push_back(one->Wait(ctx));
        }
      },
      SetsOf(size));
  return results;
}

class TuningTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TuningTest, ::testing::Values(2, 3, 4));

TEST_P(TuningTest, ResultsAreTheSameWhateverChanges) {
  const int size = GetParam();
  for (unsigned seed = 1; seed <= 2; ++seed) {
    const auto program = MakeProgram(size, seed);
    const Results expected = RunProgram(size, program, false);
    const Results got = RunProgram(size, program, true);
    for (int rank = 0; rank < size; ++rank) {
      std::vector<std::string> names;
      for (size_t number = 0; number < program.size(); ++number) {
        for (const Wish& wish : program[number]) {
          if (Includes(size, wish.set, rank)) names.push_back(fmt::format("{} of round {}", wish.name, number));
        }
      }
      ASSERT_EQ(got[rank].size(), expected[rank].size());
      for (size_t i = 0; i < expected[rank].size(); ++i) {
        const auto& want = expected[rank][i];
        const auto& have = got[rank][i];
        ASSERT_TRUE(std::ranges::equal(std::as_bytes(std::span(have)), std::as_bytes(std::span(want))))
            << "seed " << seed << ", rank " << rank << ", " << names[i];
      }
    }
  }
}

// The fast path and what is announced beside it see the change at one position, too.
TEST_P(TuningTest, BlockingOperationsOfOneNameSumRight) {
  constexpr size_t kCounts[] = {5, 1000, 5000, 16'000, 40'000};
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    std::mt19937 random(7);
    for (int round = 0; round < 400; ++round) {
      const size_t count = kCounts[round % std::size(kCounts)];
      if (rank == 0 && random() % 4 == 0) ctx->engine.load()->Retune(AnyTuning(&random));
      std::vector<float> data(count, static_cast<float>(rank + round));
      ASSERT_EQ(Sum(ctx, "s" + std::to_string(count), data.data(), count), HVD_OK) << hvd_last_error();
      const auto sum = static_cast<float>(size * round + size * (size - 1) / 2);
      ASSERT_EQ(data, std::vector<float>(count, sum)) << "round " << round;
    }
  });
}

TEST_P(TuningTest, EveryRanksCountersSayWhatIsInForce) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    const auto in_force = [&] { return ctx->engine.load()->ReadCounters(); };
    const auto begin = in_force();
    EXPECT_EQ(begin.chunk_percent, 100u);
    EXPECT_EQ(begin.chunk_bytes, 64u << 10);
    EXPECT_GT(begin.eager_bytes, 4096u);
    // The first one is over when all ranks have looked.
    for (int round = 0; round < 4; ++round) {
      float one = 1;
      ASSERT_EQ(Sum(ctx, "one", &one, 1), HVD_OK) << hvd_last_error();
      if (rank == 0 && round == 0) {
        ctx->engine.load()->Retune({.chunk_percent = 50, .eager_bytes = 4096, .spin_us = 0});
      }
    }
    const auto now = in_force();
    EXPECT_EQ(now.chunk_percent, 50u);
    EXPECT_EQ(now.chunk_bytes, 32u << 10);
    EXPECT_EQ(now.eager_bytes, 4096u);
    EXPECT_EQ(now.spin_us, 0u);
  });
}

// A set that is added has the values that the global set had at that position, or gets them with its own log.
TEST_P(TuningTest, SetsThatAreAddedWorkWithTheSameValues) {
  constexpr size_t kCount = 50'000;
  const int size = GetParam();
  if (size == 2) return;  // its only other set has all ranks
  setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 1);
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    std::mt19937 random(3);
    for (int round = 0; round < 12; ++round) {
      if (rank == 0) ctx->engine.load()->Retune(AnyTuning(&random));
      if (round % 2 == 0) {  // else it is only asked for when the set is made
        std::vector<float> data(kCount, 1);
        ASSERT_EQ(Sum(ctx, "all", data.data(), kCount), HVD_OK) << hvd_last_error();
        ASSERT_EQ(data, std::vector<float>(kCount, static_cast<float>(size)));
      }
      const std::vector<int32_t> ranks{0, size - 1};
      int32_t id = -1;
      ASSERT_EQ(hvd_process_set_add(ctx, ranks.data(), 2, &id), HVD_OK) << hvd_last_error();
      for (int time = 0; time < 3 && (rank == 0 || rank == size - 1); ++time) {
        std::vector<float> data(kCount, static_cast<float>(rank));
        ASSERT_EQ(Sum(ctx, "some", data.data(), kCount, id), HVD_OK) << hvd_last_error();
        ASSERT_EQ(data, std::vector<float>(kCount, static_cast<float>(size - 1)));
      }
      ASSERT_EQ(hvd_process_set_remove(ctx, id), HVD_OK) << hvd_last_error();
    }
  });
  unsetenv("HOROVOD_DYNAMIC_PROCESS_SETS");
}

}  // namespace
}  // namespace hvd::test
