// SPDX-License-Identifier: Apache-2.0
// Small reductions again and again, which take the fast path (engine/fast_path_cache.h), and everything that turns one
// of them into an ordinary operation half-way: late ranks, other threads, ranks that want something else.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "tests/support/job.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

constexpr size_t kCounts[] = {1, 4, 8, 9, 250, 4000, 16384};

// What rank `rank` brings in a round; sums are exact.
float Value(int rank, int round) { return static_cast<float>(rank * 1000 + round % 500); }
float SumOf(int size, int round) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += Value(rank, round);
  return sum;
}

void ExpectAll(const std::vector<float>& data, float value) { ASSERT_EQ(data, std::vector<float>(data.size(), value)); }

class FastPathTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FastPathTest, ::testing::Values(2, 3));

TEST_P(FastPathTest, GivesEveryRoundsSum) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 60; ++round) {
      for (const size_t count : kCounts) {
        std::vector<float> in(count, Value(rank, round));
        std::vector<float> out(count, -1);
        Request request(HVD_ALLREDUCE, "s" + std::to_string(count), {static_cast<int64_t>(count)}, in.data());
        const bool in_place = round % 2 == 0;
        if (!in_place) request->output.data = out.data();
        hvd_output output = EmptyOutput();
        ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
        ExpectAll(in_place ? in : out, SumOf(size, round));
        ASSERT_EQ(output.data, request->output.data);
        ASSERT_EQ(output.ndim, 1);
        ASSERT_EQ(output.shape[0], static_cast<int64_t>(count));
        ASSERT_EQ(output.engine_owned, 0);
      }
    }
  });
}

TEST_P(FastPathTest, WaitsForLateRanks) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 40; ++round) {
      if (round % size == rank) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::vector<float> data(5, Value(rank, round));
      ASSERT_EQ(Sum(ctx, "late", data.data(), data.size()), HVD_OK) << hvd_last_error();
      ExpectAll(data, SumOf(size, round));
    }
  });
}

TEST_P(FastPathTest, ThreadsDoNotDisturbEachOther) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    const auto work = [&](const std::string& name) {
      for (int round = 0; round < 150; ++round) {
        std::vector<float> data(3, Value(rank, round));
        ASSERT_EQ(Sum(ctx, name, data.data(), data.size()), HVD_OK) << hvd_last_error();
        ExpectAll(data, SumOf(size, round));
      }
    };
    std::thread other(work, "other");
    work("mine");
    other.join();
  });
}

// Arena memory that goes with the test.
class ArenaFloats {
 public:
  explicit ArenaFloats(size_t count) : data_(static_cast<float*>(hvd_alloc(count * sizeof(float)))), count_(count) {}
  ~ArenaFloats() { hvd_free(data_); }
  ArenaFloats(const ArenaFloats&) = delete;
  ArenaFloats& operator=(const ArenaFloats&) = delete;
  float* data() { return data_; }
  std::span<float> all() { return {data_, count_}; }

 private:
  float* data_;
  size_t count_;
};

// Every element is another one, so that a slice at a wrong place is noticed; sums are exact.
float ElementOf(int rank, int round, size_t i) { return Value(rank, round) + static_cast<float>(i % 1021); }

class ArenaFastPathTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ArenaFastPathTest, ::testing::Values(2, 3, 4, 8));

// Around the smallest and the largest size that is reduced where it lies on the fast path, and where chunks end. With
// more ranks than cores somebody is always late, also between its mark and its part of the reduction.
TEST_P(ArenaFastPathTest, IsReducedWhereItLies) {
  constexpr size_t kArenaCounts[] = {2047, 2048, 2051, 16384, 16401, 131072, 131075, 262144, 262145};
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (const size_t count : kArenaCounts) {
      ArenaFloats in(count);
      ArenaFloats out(count);
      std::vector<float> elsewhere(count);
      for (int round = 0; round < 10; ++round) {
        const bool in_place = round % 2 == 0;
        const bool mixed = round >= 8;  // the others find one rank's data elsewhere
        float* from = mixed && rank == 0 ? elsewhere.data() : in.data();
        float* to = in_place ? from : out.data();
        for (size_t i = 0; i < count; ++i) from[i] = ElementOf(rank, round, i);
        Request request(HVD_ALLREDUCE, "arena" + std::to_string(count), {static_cast<int64_t>(count)}, from);
        request->output.data = to;
        if (round == 5 + rank % 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
        for (size_t i = 0; i < count; ++i) {
          const float sum = SumOf(size, round) + static_cast<float>(size) * static_cast<float>(i % 1021);
          ASSERT_EQ(to[i], sum) << count << " elements, round " << round << ", element " << i;
          if (in_place) continue;
          ASSERT_EQ(from[i], ElementOf(rank, round, i)) << "the input has changed";
        }
      }
    }
  });
}

// Parts of whole rows, which are not always equal; data beside the marks, in the arena, and of one rank elsewhere.
TEST_P(ArenaFastPathTest, IsScatteredFromWhereItLies) {
  constexpr size_t kRow = 3;
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (const size_t rows : {size_t{1}, size_t{9}, size_t{1000}, size_t{10'001}, size_t{87'381}}) {
      const size_t mine = rows / size + (static_cast<size_t>(rank) < rows % size ? 1 : 0);
      const size_t before = rows / size * rank + std::min(static_cast<size_t>(rank), rows % size);
      ArenaFloats in(rows * kRow);
      std::vector<float> elsewhere(rows * kRow);
      for (int round = 0; round < 8; ++round) {
        float* from = round >= 6 && rank == 0 ? elsewhere.data() : in.data();
        for (size_t i = 0; i < rows * kRow; ++i) from[i] = ElementOf(rank, round, i);
        std::vector<float> part(mine * kRow + 1, -1);
        Request request(HVD_REDUCESCATTER, "part" + std::to_string(rows), {static_cast<int64_t>(rows), kRow}, from);
        request->output = {part.data(), mine * kRow * sizeof(float), HVD_CPU, 0};
        if (round == 3 + rank % 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        hvd_output output = EmptyOutput();
        ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
        ASSERT_EQ(output.ndim, 2);
        ASSERT_EQ(output.shape[0], static_cast<int64_t>(mine));
        for (size_t i = 0; i < mine * kRow; ++i) {
          const float own = static_cast<float>((before * kRow + i) % 1021);
          ASSERT_EQ(part[i], SumOf(size, round) + static_cast<float>(size) * own) << rows << " rows, round " << round;
        }
        ASSERT_EQ(part.back(), -1) << "too much was stored";
      }
    }
  });
}

TEST_P(ArenaFastPathTest, ThreadsDoNotDisturbEachOther) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    const auto work = [&](const std::string& name, size_t count) {
      ArenaFloats data(count);
      for (int round = 0; round < 60; ++round) {
        std::ranges::fill(data.all(), Value(rank, round));
        ASSERT_EQ(Sum(ctx, name, data.data(), count), HVD_OK) << hvd_last_error();
        for (const float value : data.all()) ASSERT_EQ(value, SumOf(size, round));
      }
    };
    std::thread other(work, "other", 5000);
    work("mine", 3000);
    other.join();
  });
}

// What a caller gives back at once may be another's memory right after the call: no peer may store into it any more.
TEST_P(ArenaFastPathTest, MemoryIsTheCallersWhenTheCallReturns) {
  constexpr size_t kCount = 6000;
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 100; ++round) {
      ArenaFloats data(kCount);
      std::ranges::fill(data.all(), Value(rank, round));
      ASSERT_EQ(Sum(ctx, "mine", data.data(), kCount), HVD_OK) << hvd_last_error();
      std::ranges::fill(data.all(), -1.f);
      std::this_thread::yield();
      for (const float value : data.all()) ASSERT_EQ(value, -1.f);
    }
  });
}

TEST(FastPathEntry, KnowsAPreparedRequestByItsId) {
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    std::vector<float> data(6);
    const Request described(HVD_ALLREDUCE, "p", {2, 3}, data.data());
    uint64_t id = 0;
    ASSERT_EQ(hvd_prepare(ctx, described, &id), HVD_OK) << hvd_last_error();
    for (int round = 0; round < 20; ++round) {
      std::fill(data.begin(), data.end(), Value(rank, round));
      Request request(HVD_ALLREDUCE, "", {6}, data.data());
      request->prepared = id;
      request->ndim = 0;
      hvd_output output = EmptyOutput();
      ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
      ExpectAll(data, SumOf(2, round));
      ASSERT_EQ(output.ndim, 2);
      ASSERT_EQ(output.shape[0], 2);
      ASSERT_EQ(output.shape[1], 3);
    }
  });
}

TEST(FastPathEntry, ANameMayChangeItsMeaning) {
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 30; ++round) {
      const auto count = static_cast<size_t>(1 + round / 4 % 3);
      std::vector<float> data(count, Value(rank, round));
      Request request(HVD_ALLREDUCE, "changes", {static_cast<int64_t>(count)}, data.data());
      if (round % 8 >= 6) request->reduce_op = HVD_MAX;
      ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
      ExpectAll(data, round % 8 >= 6 ? Value(1, round) : SumOf(2, round));
    }
  });
}

TEST(FastPathEntry, AdasumStaysAdasum) {
  RunThreads(2, [&](int, hvd_context* ctx) {
    for (int round = 0; round < 8; ++round) {
      std::vector<float> data(4, 3);
      Request request(HVD_ALLREDUCE, "adasum", {4}, data.data());
      request->reduce_op = HVD_ADASUM;
      ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
      ExpectAll(data, 3);  // of equal vectors: that vector
    }
  });
}

TEST(FastPathEntry, WrongBuffersAreRefusedAsTheFirstTime) {
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    std::vector<float> data(8, 1);
    for (int round = 0; round < 4; ++round) ASSERT_EQ(Sum(ctx, "w", data.data(), 4), HVD_OK) << hvd_last_error();
    Request shorter(HVD_ALLREDUCE, "w", {4}, data.data());
    shorter->output.bytes = 8;
    EXPECT_EQ(hvd_run(ctx, shorter, nullptr), HVD_INVALID_ARGUMENT);
    Request overlaps(HVD_ALLREDUCE, "w", {4}, data.data());
    overlaps->output.data = data.data() + 2;
    EXPECT_EQ(hvd_run(ctx, overlaps, nullptr), HVD_INVALID_ARGUMENT);
    Request nothing(HVD_ALLREDUCE, "w", {4}, nullptr);
    EXPECT_EQ(hvd_run(ctx, nothing, nullptr), HVD_INVALID_ARGUMENT);
    std::fill(data.begin(), data.end(), Value(rank, 0));
    ASSERT_EQ(Sum(ctx, "w", data.data(), 4), HVD_OK) << hvd_last_error();
    EXPECT_EQ(data[0], SumOf(2, 0));
  });
}

TEST(FastPathEntry, APartOfAnotherSizeIsRefusedAsTheFirstTime) {
  RunThreads(2, [](int, hvd_context* ctx) {
    ArenaFloats in(40);
    std::vector<float> part(40);
    for (int round = 0; round < 4; ++round) {
      const bool wrong = round == 2;
      Request request(HVD_REDUCESCATTER, "part", {40}, in.data());
      request->output = {part.data(), (wrong ? 19 : 20) * sizeof(float), HVD_CPU, 0};
      hvd_output output = EmptyOutput();
      ASSERT_EQ(hvd_run(ctx, request, &output), wrong ? HVD_INVALID_ARGUMENT : HVD_OK) << hvd_last_error();
    }
  });
}

TEST(FastPathEntry, ATimeOutLeavesAnOrdinaryOperation) {
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    std::vector<float> data(2);
    for (int round = 0; round < 6; ++round) {
      std::fill(data.begin(), data.end(), Value(rank, round));
      const Request request(HVD_ALLREDUCE, "t", {2}, data.data());
      hvd_handle handle = 0;
      // Rank 1 comes when rank 0 has given up waiting.
      if (rank == 1 && round >= 3) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      const int status = hvd_run_for(ctx, request, rank == 0 && round >= 3 ? 0.005 : 60, nullptr, &handle);
      if (status == HVD_IN_PROGRESS) {
        ASSERT_EQ(hvd_wait(ctx, handle, -1), HVD_OK) << hvd_last_error();
        ASSERT_EQ(hvd_release(ctx, handle), HVD_OK);
      } else {
        ASSERT_EQ(status, HVD_OK) << hvd_last_error();
      }
      ExpectAll(data, SumOf(2, round));
    }
  });
}

TEST(FastPathEntry, RanksMayWantDifferentThings) {
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 12; ++round) {
      // At first in the same order, so that both are known; then each rank begins with another one.
      const bool crossed = round >= 3 && rank == 1;
      std::vector<float> first(2, Value(rank, round));
      std::vector<float> second(3, Value(rank, round));
      const std::string names[] = {"a", "b"};
      const Request begin(HVD_ALLREDUCE, names[crossed], {2 + crossed}, crossed ? second.data() : first.data());
      const Request end(HVD_ALLREDUCE, names[!crossed], {3 - crossed}, crossed ? first.data() : second.data());
      hvd_handle handle = 0;
      const int status = hvd_run_for(ctx, begin, round >= 3 ? 0.002 : 60, nullptr, &handle);
      ASSERT_TRUE(status == HVD_OK || status == HVD_IN_PROGRESS) << hvd_last_error();
      ASSERT_EQ(hvd_run(ctx, end, nullptr), HVD_OK) << hvd_last_error();
      if (status == HVD_IN_PROGRESS) {
        ASSERT_EQ(hvd_wait(ctx, handle, -1), HVD_OK) << hvd_last_error();
        ASSERT_EQ(hvd_release(ctx, handle), HVD_OK);
      }
      ExpectAll(first, SumOf(2, round));
      ExpectAll(second, SumOf(2, round));
    }
  });
}

TEST(FastPathEntry, OneNameAtATimeStaysTheRule) {
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    std::vector<float> data(1);
    for (int round = 0; round < 4; ++round) ASSERT_EQ(Sum(ctx, "x", data.data(), 1), HVD_OK) << hvd_last_error();
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::vector<float> mine(1, Value(rank, 7));
    if (rank == 1) {
      ASSERT_EQ(Sum(ctx, "x", mine.data(), 1), HVD_OK) << hvd_last_error();
      return;
    }
    // Whichever thread is second is refused.
    int statuses[2] = {};
    std::vector<float> others(1, Value(rank, 7));
    std::thread other([&] { statuses[1] = Sum(ctx, "x", others.data(), 1); });
    statuses[0] = Sum(ctx, "x", mine.data(), 1);
    other.join();
    const bool first = statuses[0] == HVD_OK;
    EXPECT_EQ(statuses[first ? 0 : 1], HVD_OK);
    EXPECT_EQ(statuses[first ? 1 : 0], HVD_INVALID_ARGUMENT);
    EXPECT_EQ(first ? mine[0] : others[0], SumOf(2, 7));
  });
}

}  // namespace
}  // namespace hvd::test
