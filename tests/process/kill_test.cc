// SPDX-License-Identifier: Apache-2.0
// SIGKILL of each of four ranks in turn, in the middle of a 256 MiB allreduce, of many of 256 KiB, one after the other,
// and of allgathers that are read out of the ranks' own memory: every survivor raises an error that names the victim,
// has no wrong result before, and nothing is left of the victim. HVD_KILL_ROUNDS is the number of times that each rank
// dies; 1 if not set.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <set>

#include "tests/support/job.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

constexpr int kRanks = 4;
constexpr size_t kLarge = (256u << 20) / sizeof(float);
constexpr size_t kSmall = (256u << 10) / sizeof(float);
constexpr size_t kFetched = (4u << 20) / sizeof(float);

// Memory that parent and children share.
struct Shared {
  std::atomic<int> inside{0};  // ranks, by bit, that began the operation that the victim dies in
  std::atomic<int64_t> killed_ns{0};
  std::atomic<int64_t> raised_ns[kRanks] = {};
};

int64_t NowNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

std::set<std::string> Names(const char* folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

// What a job could leave behind on this machine, as this process sees it.
struct Traces {
  size_t descriptors = 0;
  size_t memfd_mappings = 0;
  std::set<std::string> shared_files;  // in /dev/shm
  std::set<std::string> children;

  bool operator==(const Traces&) const = default;

  static Traces Look() {
    Traces now;
    now.descriptors = Names("/proc/self/fd").size();
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) now.memfd_mappings += line.find("memfd:") != std::string::npos;
    now.shared_files = Names("/dev/shm");
    std::ifstream children("/proc/self/task/" + std::to_string(getpid()) + "/children");
    for (std::string child; children >> child;) now.children.insert(child);
    return now;
  }
};

// What a rank does again and again until it fails; returns the status.
using Operation = std::function<int()>;
// Makes it, with what it needs.
using Maker = std::function<Operation(int rank)>;

// An allreduce of so many floats in the arena.
Maker Summing(size_t count) {
  return [count](int) -> Operation {
    const std::shared_ptr<float> data(static_cast<float*>(hvd_alloc(count * sizeof(float))), hvd_free);
    EXPECT_NE(data, nullptr) << hvd_last_error();
    std::fill_n(data.get(), count, 1.f);
    return [data, count] { return Sum(nullptr, "big", data.get(), count); };
  };
}

// An allgather of as many, in memory of the rank's own. Every round has other values.
Maker Gathering(size_t count) {
  return [count](int rank) -> Operation {
    return [rank, count, own = std::vector<float>(count), all = std::vector<float>(count * kRanks),
            round = 0.f]() mutable {
      round += 1;
      std::fill(own.begin(), own.end(), round * kRanks + static_cast<float>(rank));
      Request request(HVD_ALLGATHER, "all", {static_cast<int64_t>(count)}, own.data());
      request->output = {all.data(), all.size() * sizeof(float), HVD_CPU, 0};
      hvd_output output = EmptyOutput();
      const int status = hvd_run(nullptr, request, &output);
      for (size_t i = 0; status == HVD_OK && i < all.size(); ++i) {
        if (all[i] != round * kRanks + static_cast<float>(i / count)) return -1;
      }
      return status;
    };
  };
}

// Works until that fails, which must be because of the victim.
int WorkUntilBlamed(Shared* shared, int rank, int victim, const Maker& make) {
  Operation operation = make(rank);
  float one = 1;
  EXPECT_EQ(Sum(nullptr, "gate", &one, 1), HVD_OK) << hvd_last_error();  // all have their memory
  int status = HVD_OK;
  while (status == HVD_OK) {
    shared->inside.fetch_or(1 << rank);
    status = operation();
  }
  shared->raised_ns[rank] = NowNs();
  EXPECT_EQ(status, HVD_UNKNOWN);
  EXPECT_NE(std::string(hvd_last_error()).find("rank " + std::to_string(victim)), std::string::npos)
      << hvd_last_error();
  return 0;
}

// Kills one rank. The time of every survivor from signal to error, in milliseconds.
std::vector<double> KillOne(int victim, int delay_us, const Maker& make) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Shared;
  const auto results = RunProcesses(
      kRanks, [&](int rank) { return WorkUntilBlamed(shared, rank, victim, make); },
      [&](const std::vector<int>& pids) {
        while (shared->inside != (1 << kRanks) - 1) usleep(200);
        usleep(delay_us);
        shared->killed_ns = NowNs();
        kill(pids[victim], SIGKILL);
      });
  std::vector<double> times;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_FALSE(results[rank].killed) << "rank " << rank << " hangs";
    const int status = results[rank].status;
    if (rank == victim) {
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      continue;
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << " status " << status;
    times.push_back(static_cast<double>(shared->raised_ns[rank] - shared->killed_ns) * 1e-6);
  }
  munmap(memory, sizeof(Shared));
  return times;
}

// Each rank `rounds` times, at most so long after all have begun.
void KillEach(unsigned most_delay_us, const Maker& make) {
  const char* given = getenv("HVD_KILL_ROUNDS");
  const int rounds = given != nullptr ? std::max(1, atoi(given)) : 1;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const Traces before = Traces::Look();
  std::vector<double> worst;  // survivor of each kill
  for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
    for (int victim = 0; victim < kRanks; ++victim) {
      const std::vector<double> times = KillOne(victim, static_cast<int>(random() % most_delay_us), make);
      worst.push_back(*std::max_element(times.begin(), times.end()));
    }
  }
  std::sort(worst.begin(), worst.end());
  printf("%zu kills, slowest survivor from signal to error: median %.2f ms, worst %.2f ms\n", worst.size(),
         worst[worst.size() / 2], worst.back());
  const Traces after = Traces::Look();
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.memfd_mappings, before.memfd_mappings);
  EXPECT_EQ(after.shared_files, before.shared_files);
  EXPECT_EQ(after.children, before.children);
}

// Anywhere in the operation, which takes more than 100 ms on any machine of four cores or fewer.
TEST(Kill, EachOfFourRanksInsideALargeAllreduce) { KillEach(100'000, Summing(kLarge)); }

// Between a rank's mark and the end of its part of the reduction, or anywhere else.
TEST(Kill, EachOfFourRanksAmongSmallAllreduces) { KillEach(10'000, Summing(kSmall)); }

TEST(Kill, EachOfFourRanksWhileOthersReadItsMemory) {
  setenv("HOROVOD_ALGORITHMS", "allgather:shm:cma=1..", 1);
  KillEach(20'000, Gathering(kFetched));
  unsetenv("HOROVOD_ALGORITHMS");
}

}  // namespace
}  // namespace hvd::test
