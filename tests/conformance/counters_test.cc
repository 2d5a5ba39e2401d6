// SPDX-License-Identifier: Apache-2.0
// Counters through the C ABI: exact after a known sequence of operations, readable while the engine works.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "hvd/hvd.h"
#include "tests/support/job.h"
#include "tests/support/request.h"
#include "tests/unit/trace/strict_json.h"

namespace hvd::test {
namespace {

using trace::Json;
using trace::JsonReader;

std::string Text(hvd_context* ctx, int format) {
  std::vector<char> text(1 << 16);
  uint64_t bytes = 0;
  EXPECT_EQ(hvd_counters_text(ctx, format, text.data(), text.size(), &bytes), HVD_OK) << hvd_last_error();
  EXPECT_LE(bytes, text.size());
  EXPECT_EQ(std::string(text.data()).size() + 1, bytes);
  return text.data();
}

Json Read(hvd_context* ctx) {
  auto json = JsonReader::Parse(Text(ctx, HVD_COUNTERS_JSON));
  EXPECT_TRUE(json);
  return json ? *json : Json();
}

TEST(Counters, AreExact) {
  RunThreads(3, [](int rank, hvd_context* ctx) {
    std::vector<float> data(1024, 1.0f);
    for (int i = 0; i < 10; ++i) ASSERT_EQ(Sum(ctx, "sum", data.data(), data.size()), HVD_OK) << hvd_last_error();
    ASSERT_EQ(hvd_run(ctx, Request(HVD_BARRIER, "barrier"), nullptr), HVD_OK);
    ASSERT_NE(Sum(ctx, "shapes differ", data.data(), rank == 0 ? 4 : 5), HVD_OK);
    const Json now = Read(ctx);
    EXPECT_EQ(now["rank"].number, rank);
    EXPECT_EQ(now["size"].number, 3);
    const Json& sums = now["operations"]["allreduce"];
    EXPECT_EQ(sums["completed"].number, 10);
    EXPECT_EQ(sums["failed"].number, 1);
    EXPECT_EQ(sums["timed_out"].number, 0);
    EXPECT_EQ(sums["bytes"].number, 40960);
    EXPECT_GT(sums["wait_seconds"].number, 0);
    EXPECT_GT(sums["run_seconds"].number, 0);
    EXPECT_EQ(now["operations"]["barrier"]["completed"].number, 1);
    EXPECT_EQ(now["cache"]["hits"].number, 9);
    EXPECT_EQ(now["cache"]["misses"].number, 3);
    hvd_counters sum{};
    sum.struct_size = sizeof sum;
    ASSERT_EQ(hvd_get_counters(ctx, &sum), HVD_OK);
    EXPECT_EQ(sum.operations, 12u);
    EXPECT_EQ(sum.bytes, 40960u);
    EXPECT_EQ(sum.cache_hits, 9u);
    EXPECT_EQ(sum.requests, 3u);
  });
}

TEST(Counters, KindsAreToldApartOnTheShortWay) {
  RunThreads(2, [](int, hvd_context* ctx) {
    std::vector<float> data(8, 1.0f);
    std::vector<float> part(4);
    for (int i = 0; i < 5; ++i) {
      Request request(HVD_REDUCESCATTER, "part", {8}, data.data());
      request->output = {part.data(), part.size() * sizeof(float), HVD_CPU, 0};
      ASSERT_EQ(hvd_run(ctx, request, nullptr), HVD_OK) << hvd_last_error();
    }
    const Json now = Read(ctx)["operations"];
    EXPECT_EQ(now["reducescatter"]["completed"].number, 5);
    EXPECT_EQ(now["reducescatter"]["bytes"].number, 5 * 32);
    EXPECT_EQ(now["allreduce"]["completed"].number, 0);
  });
}

// What one rank sent to another is what that one received from it.
TEST(Counters, BothEndsAgreeOnTheBytes) {
  constexpr int kRanks = 3;
  std::vector<Json> all(kRanks);
  RunThreads(kRanks, [&](int rank, hvd_context* ctx) {
    std::vector<float> data(300001, 1.0f);
    ASSERT_EQ(Sum(ctx, "small", data.data(), 1), HVD_OK);
    ASSERT_EQ(Sum(ctx, "large", data.data(), data.size()), HVD_OK);
    for (const int op : {HVD_BROADCAST, HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
      for (const int64_t rows : {int64_t{7}, int64_t{60000}}) {
        const bool uneven = op == HVD_ALLGATHER;
        Request request(op, std::to_string(op) + "." + std::to_string(rows), {rows + (uneven ? rank : 0), 3},
                        data.data());
        const int32_t splits[] = {static_cast<int32_t>(rows) - 5, 2, 3};
        if (op == HVD_BROADCAST) request->root_rank = 1;
        if (op == HVD_ALLTOALL) {
          request->splits = splits;
          request->nsplits = kRanks;
        }
        hvd_output output = EmptyOutput();
        ASSERT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
        if (output.engine_owned != 0) hvd_free(output.data);
      }
    }
    all[rank] = Read(ctx);
  });
  for (int me = 0; me < kRanks; ++me) {
    for (int other = 0; other < kRanks; ++other) {
      const Json& sent = all[me]["peers"][std::to_string(other)]["sent_bytes"];
      const Json& received = all[other]["peers"][std::to_string(me)]["received_bytes"];
      EXPECT_EQ(sent.has("tcp"), !sent.has("shm") && me != other);
      if (!sent.has("shm")) continue;
      EXPECT_EQ(sent["shm"].number, received["shm"].number) << me << " to " << other;
      EXPECT_GT(sent["shm"].number, 300001 * 4 / 3);
      EXPECT_TRUE(sent["ring"].number > 0 || (me != 0 && other != 0)) << "messages go to and from the sequencer";
    }
  }
}

TEST(Counters, SayWhoCameLast) {
  std::atomic<int> waits{0};  // the round in which rank 0 waits
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    constexpr int kRounds = 5;
    float value = 1;
    ASSERT_EQ(Sum(ctx, "sum", &value, 1), HVD_OK);
    const Json before = Read(ctx)["peers"]["1"];
    for (int round = 1; round <= kRounds; ++round) {
      while (rank == 1 && waits.load() < round) std::this_thread::yield();
      hvd_handle handle = 0;
      ASSERT_EQ(hvd_submit(ctx, Request(HVD_ALLREDUCE, "sum", {1}, &value), &handle), HVD_OK);
      if (rank == 0) {
        ASSERT_EQ(hvd_wait(ctx, handle, 0.02), HVD_IN_PROGRESS);
        waits = round;
      }
      ASSERT_EQ(hvd_wait(ctx, handle, -1), HVD_OK);
      ASSERT_EQ(hvd_release(ctx, handle), HVD_OK);
    }
    if (rank != 0) return;
    const Json after = Read(ctx)["peers"]["1"];
    // Not all: nobody knows of an operation that one rank announced while the other sent a message.
    EXPECT_GT(after["last"].number, before["last"].number);
    EXPECT_LE(after["last"].number, before["last"].number + kRounds);
    EXPECT_GT(after["wait_seconds"].number, before["wait_seconds"].number);
  });
}

TEST(Counters, BatchesAreCounted) {
  RunThreads(2, [](int, hvd_context* ctx) {
    constexpr int kCount = 20;
    std::vector<float> data(kCount);
    std::vector<hvd_handle> handles(kCount);
    std::vector<hvd_request> requests;
    std::vector<std::string> names;
    const int64_t shape = 1;
    for (int i = 0; i < kCount; ++i) names.push_back("tensor." + std::to_string(i));
    for (int i = 0; i < kCount; ++i) {
      const Request one(HVD_ALLREDUCE, names[i], {1}, &data[i]);
      requests.push_back(*static_cast<const hvd_request*>(one));
      requests.back().name = names[i].c_str();
      requests.back().shape = &shape;
    }
    ASSERT_EQ(hvd_submit_group(ctx, requests.data(), kCount, handles.data()), HVD_OK) << hvd_last_error();
    for (const hvd_handle handle : handles) {
      ASSERT_EQ(hvd_wait(ctx, handle, -1), HVD_OK);
      ASSERT_EQ(hvd_release(ctx, handle), HVD_OK);
    }
    const Json now = Read(ctx);
    EXPECT_EQ(now["operations"]["allreduce"]["completed"].number, kCount);
    const Json& fusion = now["fusion"];
    EXPECT_EQ(fusion["bytes"].number, 4 * fusion["tensors"].number);
    EXPECT_GE(fusion["tensors"].number, 2 * fusion["batches"].number);
    EXPECT_LE(fusion["tensors"].number, kCount);
    EXPECT_EQ(fusion["threshold_bytes"].number, 128 << 20);
  });
}

TEST(Counters, ATimeOutIsAFailureAndIsCountedOnce) {
  RunThreads(2, [](int rank, hvd_context* ctx) {
    float value = 1;
    if (rank == 0) {
      Request request(HVD_ALLREDUCE, "late", {1}, &value);
      request->timeout_s = 0.05;
      EXPECT_EQ(hvd_run(ctx, request, nullptr), HVD_DEADLINE_EXCEEDED);
    }
    ASSERT_EQ(hvd_run(ctx, Request(HVD_BARRIER, "timed out"), nullptr), HVD_OK);
    if (rank == 1) {
      ASSERT_EQ(Sum(ctx, "late", &value, 1), HVD_OK);
    }
    ASSERT_EQ(hvd_run(ctx, Request(HVD_BARRIER, "end"), nullptr), HVD_OK);
    const Json sums = Read(ctx)["operations"]["allreduce"];
    EXPECT_EQ(sums["completed"].number, rank == 0 ? 0 : 1);
    EXPECT_EQ(sums["failed"].number, rank == 0 ? 1 : 0);
    EXPECT_EQ(sums["timed_out"].number, rank == 0 ? 1 : 0);
  });
}

TEST(Counters, AreReadWhileTheEngineWorks) {
  RunThreads(2, [](int rank, hvd_context* ctx) {
    std::atomic<bool> stop{false};
    std::thread reader([&] {
      double last = 0;
      while (!stop) {
        const double now = Read(ctx)["operations"]["allreduce"]["completed"].number;
        EXPECT_GE(now, last);
        last = now;
        EXPECT_NE(Text(ctx, HVD_COUNTERS_PROMETHEUS).find("rank=\"" + std::to_string(rank)), std::string::npos);
      }
    });
    float value = 1;
    for (int i = 0; i < 300; ++i) ASSERT_EQ(Sum(ctx, "sum", &value, 1), HVD_OK);
    stop = true;
    reader.join();
    EXPECT_EQ(Read(ctx)["operations"]["allreduce"]["completed"].number, 300);
  });
}

TEST(CountersText, ChecksItsArgumentsAndCutsWhatDoesNotFit) {
  RunThreads(1, [](int, hvd_context* ctx) {
    char text[16] = "unchanged";
    uint64_t bytes = 0;
    EXPECT_EQ(hvd_counters_text(ctx, HVD_COUNTERS_JSON, text, sizeof text, nullptr), HVD_INVALID_ARGUMENT);
    EXPECT_EQ(hvd_counters_text(ctx, HVD_COUNTERS_JSON, nullptr, 1, &bytes), HVD_INVALID_ARGUMENT);
    EXPECT_EQ(hvd_counters_text(ctx, 2, text, sizeof text, &bytes), HVD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(hvd_last_error()).find("2 is no format"), std::string::npos) << hvd_last_error();
    EXPECT_EQ(std::string(text), "unchanged");
    EXPECT_EQ(hvd_counters_text(ctx, HVD_COUNTERS_JSON, nullptr, 0, &bytes), HVD_OK);
    EXPECT_GT(bytes, 100u);
    EXPECT_EQ(hvd_counters_text(ctx, HVD_COUNTERS_JSON, text, sizeof text, &bytes), HVD_OK);
    EXPECT_EQ(std::string(text), R"({"rank":0,"size)");
  });
  char text[16];
  uint64_t bytes = 0;
  EXPECT_EQ(hvd_counters_text(nullptr, HVD_COUNTERS_JSON, text, sizeof text, &bytes), HVD_FAILED_PRECONDITION);
}

}  // namespace
}  // namespace hvd::test
