// SPDX-License-Identifier: Apache-2.0
// Ranks that say that they are on different hosts: they talk over TCP, and sums follow the layout.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "tests/support/job.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

TEST(Hosts, SumsAreMadeHostByHostHoweverRanksAreDealtOut) {
  // 1e8 + 1 is 1e8 in float: the order shows in the result.
  const float values[] = {1e8f, 1.f, -1e8f, 1.f};
  struct Case {
    std::vector<std::string> hosts;
    float sum;
  };
  const Case cases[] = {{{"a", "a", "b", "b"}, (values[0] + values[1]) + (values[2] + values[3])},
                        {{"a", "b", "a", "b"}, (values[0] + values[2]) + (values[1] + values[3])},
                        {{"a", "b", "b", "a"}, (values[0] + values[3]) + (values[1] + values[2])},
                        {{"a", "b", "c", "d"}, ((values[0] + values[1]) + values[2]) + values[3]}};
  for (const Case& one : cases) {
    const auto results = RunProcesses(
        4,
        [&](int rank) {
          // From member to member, and summed on each host first.
          for (const size_t count : {5000, 400'000}) {
            std::vector<float> data(count, values[rank]);
            EXPECT_EQ(Sum(nullptr, "x" + std::to_string(count), data.data(), count), HVD_OK) << hvd_last_error();
            EXPECT_EQ(data, std::vector<float>(count, one.sum));
          }
          std::vector<float> rows(4, values[rank]);
          Request request(HVD_REDUCESCATTER, "y", {4}, rows.data());
          hvd_output output = EmptyOutput();
          EXPECT_EQ(hvd_run(nullptr, request, &output), HVD_OK) << hvd_last_error();
          EXPECT_EQ(*static_cast<float*>(output.data), one.sum);
          hvd_free(output.data);
          return 0;
        },
        {}, {.host_ids = one.hosts});
    for (const auto& result : results) EXPECT_EQ(result.status, 0) << one.hosts[1] << one.hosts[2];
  }
}

// Five ranks on two hosts: on each, two carry data to the other host; rank 2 only supplies and fetches.
const std::vector<std::string> kThreeAndTwo = {"a", "a", "a", "b", "b"};
constexpr int kRanks = 5;

TEST(Hosts, AHostWithoutSharedMemoryIsNoticedByAll) {
  ProcessOptions options{.host_ids = kThreeAndTwo};
  options.prepare = [](int rank) {
    if (rank >= 3) setenv("HOROVOD_DISABLE_SHM", "1", 1);
  };
  const auto body = [](int rank) {
    std::vector<float> data(400'000, static_cast<float>(rank));
    for (int round = 0; round < 3; ++round) {
      std::fill(data.begin(), data.end(), static_cast<float>(rank));
      EXPECT_EQ(Sum(nullptr, "x", data.data(), data.size()), HVD_OK) << hvd_last_error();
      EXPECT_EQ(data, std::vector<float>(data.size(), 10.f));
    }
    return 0;
  };
  for (const auto& result : RunProcesses(kRanks, body, {}, options)) EXPECT_EQ(result.status, 0);
}

TEST(Hosts, OnesThatLeaveAfterTheirLastSumTakeNothingFromTheOthers) {
  for (int late = 0; late < kRanks; ++late) {
    const auto body = [late](int rank) {
      std::vector<float> data(1'000'000, 1.f);
      EXPECT_EQ(Sum(nullptr, "x", data.data(), data.size()), HVD_OK) << hvd_last_error();
      if (rank == late) usleep(20'000);
      EXPECT_EQ(Sum(nullptr, "y", data.data(), data.size()), HVD_OK) << hvd_last_error();
      EXPECT_EQ(data.front(), 25.f);
      EXPECT_EQ(data.back(), 25.f);
      return 0;
    };
    for (const auto& result : RunProcesses(kRanks, body, {}, {.host_ids = kThreeAndTwo})) EXPECT_EQ(result.status, 0);
  }
}

TEST(Hosts, WhoeverIsKilledInsideALargeSumIsNamedToAll) {
  for (const int victim : {0, 2, 4}) {  // one that carries, one that does not, one on the other host
    void* memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto* inside = new (memory) std::atomic<int>{0};
    const auto body = [&](int) {
      std::vector<float> data(8 << 20, 1.f);
      EXPECT_EQ(Sum(nullptr, "gate", data.data(), 1), HVD_OK) << hvd_last_error();
      inside->fetch_add(1);
      int status = HVD_OK;
      while (status == HVD_OK) status = Sum(nullptr, "big", data.data(), data.size());
      EXPECT_EQ(status, HVD_UNKNOWN);
      EXPECT_NE(std::string(hvd_last_error()).find("rank " + std::to_string(victim)), std::string::npos)
          << hvd_last_error();
      return 0;
    };
    const auto parent = [&](const std::vector<int>& pids) {
      while (*inside < kRanks) usleep(200);
      usleep(30'000);
      kill(pids[victim], SIGKILL);
    };
    const auto results = RunProcesses(kRanks, body, parent, {.host_ids = kThreeAndTwo});
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_FALSE(results[rank].killed) << "rank " << rank << " hangs after the end of " << victim;
      if (rank != victim) {
        EXPECT_EQ(results[rank].status, 0) << "rank " << rank << " after the end of " << victim;
      }
    }
    munmap(memory, sizeof(std::atomic<int>));
  }
}

}  // namespace
}  // namespace hvd::test
