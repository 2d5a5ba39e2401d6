// SPDX-License-Identifier: Apache-2.0
// Whatever HOROVOD_ALGORITHMS says, results have the same bits. The layout (HVD_TEST_HOSTS, HOROVOD_DISABLE_SHM) says
// which lines of the table matter.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <random>
#include <thread>

#include "tests/support/job.h"
#include "tests/support/request.h"
#include "tests/unit/trace/strict_json.h"

namespace hvd::test {
namespace {

constexpr int kRanks = 4;
constexpr size_t kCounts[] = {1, 9, 5000, 70'001};

using Bits = std::vector<uint8_t>;

class Setting {
 public:
  explicit Setting(const std::string& text) { setenv("HOROVOD_ALGORITHMS", text.c_str(), 1); }
  ~Setting() { unsetenv("HOROVOD_ALGORITHMS"); }
};

// Values whose sum depends on the order.
void Fill(int rank, size_t count, float* data) {
  std::mt19937 random(static_cast<unsigned>(rank));
  for (size_t i = 0; i < count; ++i) {
    data[i] = std::ldexp(static_cast<float>(static_cast<int32_t>(random())), static_cast<int>(random() % 40) - 20);
  }
}

void Append(const void* data, size_t bytes, Bits* all) {
  const auto* first = static_cast<const uint8_t*>(data);
  all->insert(all->end(), first, first + bytes);
}

// Allreduces of private memory whose results go to the arena, on all ranks but the last.
void SumIntoArena(int rank, hvd_context* ctx, Bits* all) {
  for (const size_t count : kCounts) {
    const size_t bytes = count * sizeof(float);
    std::vector<float> in(count);
    std::vector<float> own(count);
    Fill(rank, count, in.data());
    const bool arena = rank + 1 < kRanks;
    void* const out = arena ? hvd_alloc(bytes) : own.data();
    Request request(HVD_ALLREDUCE, "into." + std::to_string(count), {static_cast<int64_t>(count)}, in.data());
    request->output = {out, bytes, HVD_CPU, 0};
    hvd_output output = EmptyOutput();
    EXPECT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
    Append(out, bytes, all);
    if (arena) hvd_free(out);
  }
}

// All results of rank `rank`: every operation on private memory and on arena memory.
Bits Work(int rank, hvd_context* ctx) {
  Bits all;
  SumIntoArena(rank, ctx, &all);
  for (const bool arena : {false, true}) {
    for (const size_t count : kCounts) {
      std::vector<float> own(count);
      auto* const data = arena ? static_cast<float*>(hvd_alloc(count * sizeof(float))) : own.data();
      for (const int op : {HVD_ALLREDUCE, HVD_BROADCAST, HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
        Fill(rank, count, data);
        Request request(op, std::to_string(op) + "." + std::to_string(count) + (arena ? "a" : "p"),
                        {static_cast<int64_t>(count)}, data);
        if (op == HVD_BROADCAST) request->root_rank = 1;
        const int32_t splits[] = {0, 0, 0, static_cast<int32_t>(count)};
        if (op == HVD_ALLTOALL) {
          request->splits = splits;
          request->nsplits = kRanks;
        }
        hvd_output output = EmptyOutput();
        EXPECT_EQ(hvd_run(ctx, request, &output), HVD_OK) << hvd_last_error();
        const bool in_place = op == HVD_ALLREDUCE || op == HVD_BROADCAST;
        Append(in_place ? data : output.data, in_place ? count * sizeof(float) : output.bytes, &all);
        if (output.engine_owned != 0) hvd_free(output.data);
      }
      if (arena) hvd_free(data);
    }
  }
  return all;
}

std::vector<Bits> ResultsWith(const std::string& algorithms) {
  const Setting setting(algorithms);
  std::vector<Bits> results(kRanks);
  RunThreads(kRanks, [&](int rank, hvd_context* ctx) { results[rank] = Work(rank, ctx); });
  return results;
}

TEST(Algorithms, AllGiveTheSameBits) {
  const std::vector<Bits> usual = ResultsWith("");
  for (const std::string forced : {
           "any:shm:staged=..",
           "any:shm:inline=..",
           "any:shm:inline=none;any:shm:tiny=none;any:shm:direct=1..;any:shm:direct:chunk=4K",
           "any:shm:direct=none",
           "any:shm:inline=none;any:shm:tiny=none;allreduce:shm:copied=1..;allreduce:shm:copied:chunk=4K",
           "allreduce:shm:copied=none",
           "any:shm:inline=none;any:shm:tiny=none;any:shm:direct=none;any:shm:cma=1..",
           "any:shm:inline=none;any:shm:cma=1..",
           "any:shm:cma=none",
           "allreduce:any:one_step=..;allreduce:mixed:hierarchical_reduce=none",
           "allreduce:any:direct_reduce=..;allreduce:any:direct_reduce:slice=4K;allreduce:any:direct_reduce:flight=4K",
           "allreduce:mixed:hierarchical_reduce=..;allreduce:mixed:hierarchical_reduce:chunk=4K",
           "broadcast:any:tree:slice=4K;reducescatter:any:direct_scatter:slice=4K",
       }) {
    const std::vector<Bits> results = ResultsWith(forced);
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_FALSE(usual[rank].empty());
      EXPECT_TRUE(results[rank] == usual[rank]) << forced << ", rank " << rank;
    }
  }
}

// Bytes that rank 0 sends to the others of its host through memory when all sum 256 floats.
double SharedBytes(const std::string& algorithms) {
  const Setting setting(algorithms);
  double sent = 0;
  RunThreads(kRanks, [&](int rank, hvd_context* ctx) {
    std::vector<float> data(256, 1.f);
    EXPECT_EQ(Sum(ctx, "x", data.data(), data.size()), HVD_OK) << hvd_last_error();
    if (rank != 0) return;
    std::vector<char> text(1 << 16);
    uint64_t bytes = 0;
    EXPECT_EQ(hvd_counters_text(ctx, HVD_COUNTERS_JSON, text.data(), text.size(), &bytes), HVD_OK);
    const auto counters = trace::JsonReader::Parse(text.data());
    ASSERT_TRUE(counters);
    for (const auto& [name, peer] : (*counters)["peers"].fields) sent += peer["sent_bytes"]["shm"].number;
  });
  return sent;
}

// What is moved tells which one it was.
TEST(Algorithms, AreThoseThatWereAskedFor) {
  const size_t hosts = RanksByHost(kRanks).size();
  if (getenv("HOROVOD_DISABLE_SHM") != nullptr || hosts == kRanks) GTEST_SKIP() << "nothing goes through memory";
  constexpr double kBytes = 1024;
  if (hosts == 1) {
    EXPECT_EQ(SharedBytes(""), 3 * kBytes);                       // inline: everybody reads all
    EXPECT_EQ(SharedBytes("any:shm:staged=.."), 3 * kBytes / 2);  // a quarter read, a quarter stored
  } else {
    EXPECT_EQ(SharedBytes(""), 0);
    EXPECT_GT(SharedBytes("allreduce:mixed:hierarchical_reduce=.."), 0);
  }
}

TEST(Algorithms, WrongTextsEndInit) {
  const Setting setting("allreduce:network:two_steps=..1K");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([rank] {
      hvd_init_options options;
      hvd_init_options_default(&options);
      options.rank = rank;
      options.size = 2;
      options.rendezvous = "memory:wrong-algorithms";
      hvd_context* ctx = nullptr;
      EXPECT_EQ(hvd_init(&options, &ctx), HVD_INVALID_ARGUMENT);
      const std::string error = hvd_last_error();
      EXPECT_NE(
          error.find("HOROVOD_ALGORITHMS: allreduce:network:two_steps=..1K: no algorithm is called \"two_steps\"; "
                     "known: tiny, direct"),
          std::string::npos)
          << error;
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace hvd::test
