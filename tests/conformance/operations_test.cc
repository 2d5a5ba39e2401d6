// SPDX-License-Identifier: Apache-2.0
// The operations whose results differ by rank, groups, join and changing process sets, against plain references. Run
// once more with HOROVOD_DISABLE_SHM=1, over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/job.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

using ::testing::HasSubstr;

// What rank `rank` holds at row `row` of tensor `seed`: sums of these are exact in float.
float Cell(int rank, int64_t row, int seed) { return static_cast<float>((rank * 31 + row * 7 + seed * 13) % 1009); }

std::vector<float> Rows(int rank, int64_t rows, int64_t width, int seed) {
  std::vector<float> data;
  for (int64_t i = 0; i < rows * width; ++i) data.push_back(Cell(rank, i, seed));
  return data;
}

// The engine's output as a vector, given back.
std::vector<float> Take(const hvd_output& output) {
  const auto* data = static_cast<const float*>(output.data);
  std::vector<float> values(data, data + output.bytes / sizeof(float));
  if (output.engine_owned) hvd_free(output.data);
  return values;
}

class OperationsTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OperationsTest, ::testing::Values(1, 2, 3, 4, 8));

constexpr int64_t kRows[] = {0, 1, 2, 5, 64, 1000, 20000, 200001};

TEST_P(OperationsTest, ReducescatterDealsOutRows) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 3; ++round) {
      for (const int64_t rows : kRows) {
        const std::vector<float> mine = Rows(rank, rows, 3, round);
        Request request(HVD_REDUCESCATTER, "r" + std::to_string(rows), {rows, 3}, mine.data());
        hvd_output output = EmptyOutput();
        ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
        const int64_t extra = rows % size;
        const int64_t begin = rows / size * rank + std::min<int64_t>(rank, extra);
        const int64_t count = rows / size + (rank < extra ? 1 : 0);
        ASSERT_EQ(output.shape[0], count);
        std::vector<float> expected;
        for (int64_t i = begin * 3; i < (begin + count) * 3; ++i) {
          float sum = 0;
          for (int r = 0; r < size; ++r) sum += Cell(r, i, round);
          expected.push_back(sum);
        }
        ASSERT_EQ(Take(output), expected) << rows << " rows, rank " << rank;
      }
    }
  });
}

int64_t Split(int from, int to, int seed) { return (from * 5 + to * 3 + seed * 11) % 7 * (seed % 2 == 0 ? 1 : 3000); }

TEST_P(OperationsTest, AlltoallDeliversByRankAndTellsTheSplits) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int seed = 0; seed < 6; ++seed) {
      std::vector<int32_t> splits;
      for (int to = 0; to < size; ++to) splits.push_back(static_cast<int32_t>(Split(rank, to, seed)));
      const int64_t rows = std::accumulate(splits.begin(), splits.end(), int64_t{2});  // two are not sent
      const std::vector<float> mine = Rows(rank, rows, 2, seed);
      Request request(HVD_ALLTOALL, "a" + std::to_string(seed % 2), {rows, 2}, mine.data());
      request->splits = splits.data();
      request->nsplits = size;
      hvd_output output = EmptyOutput();
      ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
      std::vector<float> expected;
      ASSERT_EQ(output.nsplits, size);
      for (int from = 0; from < size; ++from) {
        ASSERT_EQ(output.received_splits[from], Split(from, rank, seed));
        int64_t begin = 0;
        for (int to = 0; to < rank; ++to) begin += Split(from, to, seed);
        for (int64_t i = begin * 2; i < (begin + Split(from, rank, seed)) * 2; ++i)
          expected.push_back(Cell(from, i, seed));
      }
      ASSERT_EQ(Take(output), expected) << "seed " << seed << ", rank " << rank;
    }
    const std::vector<float> even = Rows(rank, size * 2, 1, 9);
    Request request(HVD_ALLTOALL, "even", {size * 2}, even.data());
    hvd_output output = EmptyOutput();
    ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
    const std::vector<float> got = Take(output);
    for (int from = 0; from < size; ++from) EXPECT_EQ(got[from * 2], Cell(from, rank * 2, 9));
  });
}

// Equal splits on all ranks, of the same size or not, take a short cut; on a rank or two with other ones, they must
// not.
TEST_P(OperationsTest, AlltoallOfEqualSplitsMayChange) {
  const int size = GetParam();
  const auto rows_to = [](int from, int to, int round) -> int64_t {
    const bool uneven = round % 5 == 3 && from == 0;
    return uneven ? to + 1 : (round / 2 + from) % 3 * (round % 4 == 2 ? 5000 : 1);
  };
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 24; ++round) {
      std::vector<int32_t> splits;
      for (int to = 0; to < size; ++to) splits.push_back(static_cast<int32_t>(rows_to(rank, to, round)));
      const int64_t rows = std::accumulate(splits.begin(), splits.end(), int64_t{0});
      const std::vector<float> mine = Rows(rank, rows, 2, round);
      Request request(HVD_ALLTOALL, "e", {rows, 2}, mine.data());
      request->splits = splits.data();
      request->nsplits = size;
      hvd_output output = EmptyOutput();
      ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
      std::vector<float> expected;
      ASSERT_EQ(output.nsplits, size);
      for (int from = 0; from < size; ++from) {
        const int64_t count = rows_to(from, rank, round);
        ASSERT_EQ(output.received_splits[from], count);
        int64_t begin = 0;
        for (int to = 0; to < rank; ++to) begin += rows_to(from, to, round);
        for (int64_t i = begin * 2; i < (begin + count) * 2; ++i) expected.push_back(Cell(from, i, round));
      }
      ASSERT_EQ(Take(output), expected) << "round " << round << ", rank " << rank;
    }
  });
}

std::vector<double> PairwiseRule(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  std::vector<double> sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    sum[i] = (aa == 0 ? 1 : 1 - ab / (2 * aa)) * a[i] + (bb == 0 ? 1 : 1 - ab / (2 * bb)) * b[i];
  }
  return sum;
}

TEST_P(OperationsTest, AdasumFollowsThePairwiseRule) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (const size_t count : {1u, 7u, 1000u, 100003u}) {
      std::vector<std::vector<double>> vectors(size, std::vector<double>(count));
      for (int r = 0; r < size; ++r) {
        for (size_t i = 0; i < count; ++i) vectors[r][i] = std::sin(static_cast<double>(i % 977) * (r + 1)) + 0.1 * r;
      }
      std::vector<double> mine = vectors[rank];
      for (int distance = 1; distance < size; distance *= 2) {
        for (int r = 0; r + distance < size; r += 2 * distance)
          vectors[r] = PairwiseRule(vectors[r], vectors[r + distance]);
      }
      const auto shape = static_cast<int64_t>(count);
      Request request(HVD_ALLREDUCE, "adasum" + std::to_string(count));
      request->dtype = HVD_FLOAT64;
      request->reduce_op = HVD_ADASUM;
      request->ndim = 1;
      request->shape = &shape;
      request->input = request->output = {mine.data(), count * sizeof(double), HVD_CPU, 0};
      ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
      for (size_t i = 0; i < count; ++i) ASSERT_NEAR(mine[i], vectors[0][i], 1e-12) << i;
    }
  });
}

TEST_P(OperationsTest, GroupsAreOverTogetherAndFailTogether) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    float a = 1, b = 2;
    const auto submit = [&](int64_t length_of_b, hvd_handle* handles) {
      std::vector<float> data(static_cast<size_t>(length_of_b), 2);
      Request first(HVD_ALLREDUCE, "g.1of2", {1}, &a);
      Request second(HVD_ALLREDUCE, "g.2of2", {length_of_b}, length_of_b == 1 ? &b : data.data());
      const hvd_request both[] = {*first.operator->(), *second.operator->()};
      ASSERT_EQ(hvd_submit_group(ctx, both, 2, handles), HVD_OK) << hvd_last_error();
      const int status = hvd_wait(ctx, handles[1], -1);
      ASSERT_EQ(hvd_wait(ctx, handles[0], -1), status) << hvd_last_error();
    };
    hvd_handle handles[2];
    submit(1, handles);
    EXPECT_EQ(hvd_poll(ctx, handles[0]), HVD_OK);
    EXPECT_EQ(a, static_cast<float>(size));
    EXPECT_EQ(b, 2.f * static_cast<float>(size));
    for (const hvd_handle handle : handles) hvd_release(ctx, handle);
    if (size == 1) return;
    submit(rank == 0 ? 3 : 2, handles);
    for (const hvd_handle handle : handles) {
      EXPECT_EQ(hvd_poll(ctx, handle), HVD_FAILED_PRECONDITION);
      EXPECT_THAT(hvd_last_error(), HasSubstr("Mismatched ALLREDUCE tensor shapes"));
      hvd_release(ctx, handle);
    }
    // A group of which one cannot be started is not started at all.
    Request good(HVD_ALLREDUCE, "x", {1}, &a);
    Request bad(HVD_ALLREDUCE, "x", {1}, &b);
    const hvd_request both[] = {*good.operator->(), *bad.operator->()};
    EXPECT_EQ(hvd_submit_group(ctx, both, 2, handles), HVD_INVALID_ARGUMENT);
    EXPECT_EQ(Sum(ctx, "x", &a, 1), HVD_OK) << hvd_last_error();
  });
}

TEST(Groups, TimeOutTogether) {
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    float a = 1, b = 1;
    Request first(HVD_ALLREDUCE, "a", {1}, &a);
    Request second(HVD_ALLREDUCE, "b", {1}, &b);
    if (rank == 0) {
      // The other rank comes to one of the two only.
      first->timeout_s = second->timeout_s = 0.2;
      const hvd_request both[] = {*first.operator->(), *second.operator->()};
      hvd_handle handles[2];
      ASSERT_EQ(hvd_submit_group(ctx, both, 2, handles), HVD_OK) << hvd_last_error();
      for (const hvd_handle handle : handles) {
        EXPECT_EQ(hvd_wait(ctx, handle, -1), HVD_DEADLINE_EXCEEDED);
        hvd_release(ctx, handle);
      }
    } else {
      EXPECT_EQ(hvd_run(ctx, first, nullptr), HVD_OK) << hvd_last_error();
    }
    Request barrier(HVD_BARRIER, "barrier");
    EXPECT_EQ(hvd_run(ctx, barrier, nullptr), HVD_OK) << hvd_last_error();
    if (rank == 1) {
      EXPECT_EQ(hvd_run(ctx, second, nullptr), HVD_OK) << hvd_last_error();
    }
    EXPECT_EQ(hvd_run(ctx, barrier, nullptr), HVD_OK) << hvd_last_error();
  });
}

TEST_P(OperationsTest, JoinedRanksAddNothing) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 2; ++round) {
      // Rank r takes part in r + 1 steps. Names of earlier rounds are announced, new ones are not.
      for (int step = 0; step <= rank; ++step) {
        const int live = size - step;
        float sum = 1, least = static_cast<float>(10 + rank), product = 2;
        ASSERT_EQ(Sum(ctx, "s" + std::to_string(step), &sum, 1), HVD_OK) << hvd_last_error();
        EXPECT_EQ(sum, static_cast<float>(live));
        Request min(HVD_ALLREDUCE, "min", {1}, &least);
        min->reduce_op = HVD_MIN;
        ASSERT_EQ(hvd_run(ctx, min, nullptr), HVD_OK) << hvd_last_error();
        EXPECT_EQ(least, static_cast<float>(10 + step));
        Request times(HVD_ALLREDUCE, "product", {1}, &product);
        times->reduce_op = HVD_PRODUCT;
        ASSERT_EQ(hvd_run(ctx, times, nullptr), HVD_OK) << hvd_last_error();
        EXPECT_EQ(product, std::exp2(static_cast<float>(live)));
      }
      Request join(HVD_JOIN, "");
      hvd_output output = EmptyOutput();
      ASSERT_EQ(hvd_run(ctx, join, &output), HVD_OK) << hvd_last_error();
      EXPECT_EQ(output.number, size - 1);
      float all = 1;
      ASSERT_EQ(Sum(ctx, "after", &all, 1), HVD_OK) << hvd_last_error();
      EXPECT_EQ(all, static_cast<float>(size));
    }
  });
}

TEST_P(OperationsTest, WhatWasSubmittedBeforeAJoinIsDone) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 20; ++round) {
      float known = 1, alone = 1;
      ASSERT_EQ(Sum(ctx, "known", &known, 1), HVD_OK) << hvd_last_error();
      // The last rank is the only one to submit it, under a name that everybody knows, and joins while it is in flight.
      Request request(HVD_ALLREDUCE, "known", {1}, &alone);
      hvd_handle handle = 0;
      if (rank == size - 1) {
        ASSERT_EQ(hvd_submit(ctx, request, &handle), HVD_OK) << hvd_last_error();
      }
      Request join(HVD_JOIN, "");
      hvd_output output = EmptyOutput();
      ASSERT_EQ(hvd_run(ctx, join, &output), HVD_OK) << hvd_last_error();
      if (rank != size - 1) continue;
      ASSERT_EQ(hvd_wait(ctx, handle, -1), HVD_OK) << hvd_last_error();
      EXPECT_EQ(alone, 1.f);
      hvd_release(ctx, handle);
    }
  });
}

TEST_P(OperationsTest, ARoundThatIsShortMayOvertakeALongOne) {
  const int size = GetParam();
  RunThreads(size, [&](int rank, hvd_context* ctx) {
    for (const size_t tail : {16u, 1024u, 5000u}) {
      std::vector<float> data(size * ((size_t{1} << 18) + tail), 1);
      ASSERT_EQ(Sum(ctx, "x" + std::to_string(tail), data.data(), data.size()), HVD_OK) << hvd_last_error();
      EXPECT_EQ(data, std::vector<float>(data.size(), static_cast<float>(size)));
    }
  });
}

TEST(Join, OtherOperationsSayThatTheyCannot) {
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    hvd_output output = EmptyOutput();
    if (rank == 1) {
      float value = 1;
      for (const int op : {HVD_ALLGATHER, HVD_BROADCAST, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
        std::vector<float> data(4, 1);
        Request request(op, "op" + std::to_string(op), {4}, data.data());
        request->root_rank = 1;
        EXPECT_EQ(hvd_run(ctx, request, &output), HVD_FAILED_PRECONDITION);
        EXPECT_THAT(hvd_last_error(), HasSubstr("is not supported with Join at this time"));
      }
      Request scaled(HVD_ALLREDUCE, "scaled", {1}, &value);
      scaled->reduce_op = HVD_PRODUCT;
      scaled->prescale = 3;
      EXPECT_EQ(hvd_run(ctx, scaled, nullptr), HVD_FAILED_PRECONDITION);
      EXPECT_THAT(hvd_last_error(), HasSubstr("is not supported with Join"));
      EXPECT_EQ(Sum(ctx, "one", &value, 1), HVD_OK) << hvd_last_error();
    }
    Request join(HVD_JOIN, "");
    EXPECT_EQ(hvd_run(ctx, join, &output), HVD_OK) << hvd_last_error();
    EXPECT_EQ(output.number, 1);
  });
}

TEST(ProcessSets, ComeAndGo) {
  setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1", 1);
  RunThreads(4, [&](int rank, hvd_context* ctx) {
    for (int round = 0; round < 10; ++round) {
      const int32_t low[] = {0, 1, 2};
      const int32_t odd[] = {3, 1};
      int32_t first = -1, second = -1;
      ASSERT_EQ(hvd_process_set_add(ctx, low, 3, &first), HVD_OK) << hvd_last_error();
      ASSERT_EQ(hvd_process_set_add(ctx, odd, 2, &second), HVD_OK) << hvd_last_error();
      EXPECT_EQ(first, round % 2 == 0 ? 1 : 2);
      EXPECT_EQ(second, 3 - first);
      EXPECT_EQ(hvd_process_set_add(ctx, low, 3, &first), HVD_INVALID_ARGUMENT);
      first = round % 2 == 0 ? 1 : 2;
      for (int step = 0; step < 3; ++step) {
        float value = 1;
        if (rank != 3) {
          EXPECT_EQ(Sum(ctx, "x", &value, 1, first), HVD_OK) << hvd_last_error();
          EXPECT_EQ(value, 3.f);
        }
        value = 1;
        if (rank % 2 == 1) {
          EXPECT_EQ(Sum(ctx, "x", &value, 1, second), HVD_OK) << hvd_last_error();
          EXPECT_EQ(value, 2.f);
        }
      }
      // The one removed first is given out first.
      ASSERT_EQ(hvd_process_set_remove(ctx, second), HVD_OK) << hvd_last_error();
      ASSERT_EQ(hvd_process_set_remove(ctx, first), HVD_OK) << hvd_last_error();
      float value = 1;
      EXPECT_EQ(Sum(ctx, "x", &value, 1, first), HVD_INVALID_ARGUMENT);
      EXPECT_THAT(hvd_last_error(), HasSubstr("Process set provided does not exist"));
    }
    // Ranks that want different sets are told.
    const int32_t mine[] = {rank == 0 ? 0 : 1, 2};
    int32_t id = -1;
    EXPECT_EQ(hvd_process_set_add(ctx, mine, 2, &id), HVD_FAILED_PRECONDITION);
    EXPECT_THAT(hvd_last_error(), HasSubstr("Mismatched process sets"));
    EXPECT_EQ(hvd_process_set_remove(ctx, 0), HVD_INVALID_ARGUMENT);
    EXPECT_EQ(hvd_process_set_remove(ctx, 77), HVD_INVALID_ARGUMENT);
  });
  unsetenv("HOROVOD_DYNAMIC_PROCESS_SETS");
}

}  // namespace
}  // namespace hvd::test
