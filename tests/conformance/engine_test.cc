// SPDX-License-Identifier: Apache-2.0
// Collectives through the whole engine, ranks as threads, against plain references: sizes that meet every road (beside
// the mark, staged, direct), 1 to 8 ranks. Run again with HOROVOD_DISABLE_SHM=1,
// over TCP, and on several hosts.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/support/job.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

std::vector<float> Values(int rank, size_t count, unsigned seed) {
  std::mt19937 random(seed * 1000003u + rank);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int32_t>(random())) * 1e-6f;
  return values;
}

void Add(const std::vector<float>& more, std::vector<float>* sum) {
  if (sum->empty()) {
    *sum = more;
    return;
  }
  for (size_t i = 0; i < more.size(); ++i) (*sum)[i] = (*sum)[i] + more[i];
}

// The ranks of each host in rank order, then the hosts.
std::vector<float> LayoutOrderSum(int size, size_t count, unsigned seed) {
  std::vector<float> sum;
  for (const std::vector<int>& ranks : RanksByHost(size)) {
    std::vector<float> of_host;
    for (const int rank : ranks) Add(Values(rank, count, seed), &of_host);
    Add(of_host, &sum);
  }
  return sum;
}

constexpr size_t kSizes[] = {0, 1, 3, 4, 5, 63, 1000, 4096, 16384, 16385, 100000, 300001, 1500000};

class EngineTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, EngineTest, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(EngineTest, SumsInLayoutOrderBitForBit) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    // Twice: the first time every name is new, the second time it is announced.
    for (int round = 0; round < 2; ++round) {
      for (size_t count : kSizes) {
        const unsigned seed = static_cast<unsigned>(count) + round;
        std::vector<float> data = Values(rank, count, seed);
        ASSERT_EQ(Sum(ctx, "t" + std::to_string(count), data.data(), count), HVD_OK) << hvd_last_error();
        ASSERT_EQ(data, LayoutOrderSum(size, count, seed)) << count << " elements, rank " << rank;
      }
    }
  });
}

TEST_P(EngineTest, SumsArenaMemoryInPlace) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 3; ++round) {
      for (size_t count : {1000u, 20000u, 700000u}) {
        const unsigned seed = static_cast<unsigned>(count) + round;
        const std::vector<float> values = Values(rank, count, seed);
        auto* data = static_cast<float*>(hvd_alloc(count * sizeof(float)));
        ASSERT_NE(data, nullptr);
        std::copy(values.begin(), values.end(), data);
        ASSERT_EQ(Sum(ctx, "a" + std::to_string(count), data, count), HVD_OK) << hvd_last_error();
        ASSERT_EQ(std::vector<float>(data, data + count), LayoutOrderSum(size, count, seed));
        hvd_free(data);
      }
    }
  });
}

TEST_P(EngineTest, GathersRowsOfDifferentCounts) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 3; ++round) {
      for (int64_t width : {1, 7, 50000}) {
        const int64_t rows = (rank + round) % 3;
        const std::vector<float> values = Values(rank, static_cast<size_t>(rows * width), 7);
        const Request request(HVD_ALLGATHER, "g" + std::to_string(width), {rows, width}, values.data());
        hvd_output output = EmptyOutput();
        ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
        std::vector<float> expected;
        for (int r = 0; r < size; ++r) {
          const std::vector<float> part = Values(r, static_cast<size_t>((r + round) % 3 * width), 7);
          expected.insert(expected.end(), part.begin(), part.end());
        }
        ASSERT_EQ(output.ndim, 2);
        ASSERT_EQ(output.shape[1], width);
        const auto* data = static_cast<const float*>(output.data);
        ASSERT_EQ(std::vector<float>(data, data + output.bytes / sizeof(float)), expected);
        hvd_free(output.data);
      }
    }
  });
}

TEST_P(EngineTest, BroadcastsFromEveryRoot) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 2; ++round) {
      for (int root = 0; root < size; ++root) {
        for (size_t count : {0u, 1u, 5000u, 600000u}) {
          std::vector<float> data = Values(rank, count, 3);
          const std::string name = "b" + std::to_string(count) + "." + std::to_string(root);
          Request request(HVD_BROADCAST, name, {static_cast<int64_t>(count)}, data.data());
          request->root_rank = root;
          ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
          ASSERT_EQ(data, Values(root, count, 3));
        }
      }
    }
  });
}

TEST_P(EngineTest, AsynchronousOperationsInAnyOrder) {
  const int size = GetParam();
  constexpr int kOps = 60;
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int round = 0; round < 6; ++round) {
      std::vector<int> order(kOps);
      for (int i = 0; i < kOps; ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::vector<float>> data(kOps);
      std::vector<hvd_handle> handles(kOps);
      for (int i : order) {
        const size_t count = kSizes[i % 10];
        data[i] = Values(rank, count, static_cast<unsigned>(i + round));
        const Request request(HVD_ALLREDUCE, "n" + std::to_string(i), {static_cast<int64_t>(count)}, data[i].data());
        ASSERT_EQ(hvd_submit(ctx, request, &handles[i]), HVD_OK) << hvd_last_error();
      }
      for (int i = 0; i < kOps; ++i) {
        ASSERT_EQ(hvd_wait(ctx, handles[i], -1), HVD_OK) << hvd_last_error();
        ASSERT_EQ(data[i], LayoutOrderSum(size, kSizes[i % 10], static_cast<unsigned>(i + round)));
        ASSERT_EQ(hvd_release(ctx, handles[i]), HVD_OK);
      }
    }
  });
}

TEST(EngineMemory, OutputsKeptForAThousandStepsStayWhatTheyWere) {
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    std::vector<float*> kept;
    for (int step = 0; step < 1000; ++step) {
      const std::vector<float> values(100 + step % 3 * 10000, static_cast<float>(step));
      const Request request(HVD_ALLGATHER, "kept", {static_cast<int64_t>(values.size())}, values.data());
      hvd_output output = EmptyOutput();
      ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
      kept.push_back(static_cast<float*>(output.data));
    }
    for (int step = 0; step < 1000; ++step) {
      const size_t last = 2 * (100 + step % 3 * 10000) - 1;
      ASSERT_EQ(kept[step][0], static_cast<float>(step));
      ASSERT_EQ(kept[step][last], static_cast<float>(step));
      hvd_free(kept[step]);
    }
  });
}

TEST(EngineSets, ThreeOverlappingSetsInDifferentOrderOnEachRank) {
  const std::vector<std::vector<int>> sets{{0, 1}, {1, 2}, {0, 2}};
  RunThreads(
      3,
      [&](int rank, hvd_context* ctx) {
        for (int round = 0; round < 30; ++round) {
          std::vector<int> mine;
          for (int s = 1; s <= 3; ++s) {
            if (sets[s - 1][0] == rank || sets[s - 1][1] == rank) mine.push_back(s);
          }
          if ((rank + round) % 2 == 0) std::swap(mine[0], mine[1]);
          std::vector<std::vector<float>> data(2);
          std::vector<hvd_handle> handles(2);
          for (int i = 0; i < 2; ++i) {
            data[i].assign(50000, static_cast<float>(rank + 1));
            Request request(HVD_ALLREDUCE, "same", {50000}, data[i].data());
            request->process_set = mine[i];
            ASSERT_EQ(hvd_submit(ctx, request, &handles[i]), HVD_OK) << hvd_last_error();
          }
          for (int i = 0; i < 2; ++i) {
            ASSERT_EQ(hvd_wait(ctx, handles[i], -1), HVD_OK) << hvd_last_error();
            hvd_release(ctx, handles[i]);
            const auto& set = sets[mine[i] - 1];
            ASSERT_EQ(data[i][49999], static_cast<float>(set[0] + set[1] + 2));
          }
        }
      },
      sets);
}

TEST(EngineSets, SmallOnOneSetIsNotStuckBehindLargeOnAnother) {
  std::atomic<int> small_done{0};
  RunThreads(3,
             [&](int rank, hvd_context* ctx) {
               std::vector<float> large(16 << 20, 1.f);
               const Request request(HVD_ALLREDUCE, "large", {static_cast<int64_t>(large.size())}, large.data());
               // Rank 2 joins the large one only after the small ones are through: they cannot have waited for it.
               if (rank == 2) {
                 while (small_done.load() < 2) std::this_thread::yield();
               }
               hvd_handle handle = 0;
               ASSERT_EQ(hvd_submit(ctx, request, &handle), HVD_OK) << hvd_last_error();
               for (int i = 0; rank < 2 && i < 100; ++i) {
                 float value = static_cast<float>(rank);
                 ASSERT_EQ(Sum(ctx, "small", &value, 1, 1), HVD_OK) << hvd_last_error();
                 ASSERT_EQ(value, 1.f);
               }
               ++small_done;
               ASSERT_EQ(hvd_wait(ctx, handle, -1), HVD_OK) << hvd_last_error();
               ASSERT_EQ(large[12345], 3.f);
               hvd_release(ctx, handle);
             },
             {{0, 1}});
}

TEST(EngineErrors, DisagreementIsToldToEveryRankAndTheEngineGoesOn) {
  RunThreads(3, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 4; ++round) {
      std::vector<float> data(100 + (rank == 2), 1.f);
      EXPECT_EQ(Sum(ctx, "shape", data.data(), data.size()), HVD_FAILED_PRECONDITION);
      EXPECT_NE(std::string(hvd_last_error()).find("Mismatched ALLREDUCE tensor shapes"), std::string::npos)
          << hvd_last_error();
      EXPECT_NE(std::string(hvd_last_error()).find("2"), std::string::npos);
      std::vector<float> good(100, 1.f);
      EXPECT_EQ(Sum(ctx, "shape", good.data(), good.size()), HVD_OK) << hvd_last_error();
      EXPECT_EQ(good[99], 3.f);
    }
  });
}

TEST(EngineErrors, ARankThatLeavesWithOperationsPendingSaysWhy) {
  std::atomic<bool> waiting{false};
  RunThreads(3, [&](int rank, hvd_context* ctx) {
    float value = 1;
    if (rank == 1) {
      while (!waiting) std::this_thread::yield();
      hvd_handle handle = 0;
      ASSERT_EQ(hvd_submit(ctx, Request(HVD_ALLREDUCE, "mine alone", {1}, &value), &handle), HVD_OK);
      return;  // and shuts down
    }
    if (rank == 0) waiting = true;
    EXPECT_EQ(Sum(ctx, "of all", &value, 1), HVD_UNKNOWN);
    const std::string text = hvd_last_error();
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("hvd.shutdown()"), std::string::npos) << text;
    EXPECT_NE(text.find("allreduce 'mine alone'"), std::string::npos) << text;
  });
}

TEST(EngineErrors, ARankThatLeavesAfterAnErrorHandsItOn) {
  std::atomic<int> failed{0};
  RunThreads(3,
             [&](int rank, hvd_context* ctx) {
               std::vector<float> data(rank == 1 ? 2 : 1, 1.f);
               EXPECT_EQ(Sum(ctx, "different", data.data(), data.size()), HVD_FAILED_PRECONDITION);
               ++failed;
               while (failed < 3) std::this_thread::yield();
               if (rank == 1) return;  // gives up
               if (rank == 2) {
                 // Fails because of rank 1, leaves in its turn, and is not blamed for it.
                 EXPECT_EQ(Sum(ctx, "of two", data.data(), 1, 1), HVD_UNKNOWN);
                 return;
               }
               EXPECT_EQ(Sum(ctx, "of all", data.data(), 1), HVD_UNKNOWN);
               const std::string text = hvd_last_error();
               EXPECT_NE(text.find("rank 1 left"), std::string::npos) << text;
               EXPECT_NE(text.find("Its last error: Mismatched ALLREDUCE tensor shapes"), std::string::npos) << text;
             },
             {{1, 2}});
}

}  // namespace
}  // namespace hvd::test
