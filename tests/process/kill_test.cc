// SPDX-License-Identifier: Apache-2.0
// SIGKILL of each of four ranks in turn, in the middle of a 256 MiB allreduce, and of many of 256 KiB, one after the
// other: every survivor raises an error that names the victim, and nothing is left of it. HVD_KILL_ROUNDS is the number
// of times that each rank dies; 1 if not set.
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
#include <new>
#include <random>
#include <set>

#include "tests/support/job.h"

namespace hvd::test {
namespace {

constexpr int kRanks = 4;
constexpr size_t kLarge = (256u << 20) / sizeof(float);
constexpr size_t kSmall = (256u << 10) / sizeof(float);

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

// Sums until that fails, which must be because of the victim.
int SumUntilBlamed(Shared* shared, int rank, int victim, size_t count) {
  auto* data = static_cast<float*>(hvd_alloc(count * sizeof(float)));
  EXPECT_NE(data, nullptr) << hvd_last_error();
  std::fill_n(data, count, 1.f);
  EXPECT_EQ(Sum(nullptr, "gate", data, 1), HVD_OK) << hvd_last_error();  // all have their memory
  int status = HVD_OK;
  while (status == HVD_OK) {
    shared->inside.fetch_or(1 << rank);
    status = Sum(nullptr, "big", data, count);
  }
  shared->raised_ns[rank] = NowNs();
  EXPECT_EQ(status, HVD_UNKNOWN);
  EXPECT_NE(std::string(hvd_last_error()).find("rank " + std::to_string(victim)), std::string::npos)
      << hvd_last_error();
  hvd_free(data);
  return 0;
}

// Kills one rank. The time of every survivor from signal to error, in milliseconds.
std::vector<double> KillOne(int victim, int delay_us, size_t count) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Shared;
  const auto results = RunProcesses(
      kRanks, [&](int rank) { return SumUntilBlamed(shared, rank, victim, count); },
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
void KillEach(unsigned most_delay_us, size_t count) {
  const char* given = getenv("HVD_KILL_ROUNDS");
  const int rounds = given != nullptr ? std::max(1, atoi(given)) : 1;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const Traces before = Traces::Look();
  std::vector<double> worst;  // survivor of each kill
  for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
    for (int victim = 0; victim < kRanks; ++victim) {
      const std::vector<double> times = KillOne(victim, static_cast<int>(random() % most_delay_us), count);
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
TEST(Kill, EachOfFourRanksInsideALargeAllreduce) { KillEach(100'000, kLarge); }

// Between a rank's mark and the end of its part of the reduction, or anywhere else.
TEST(Kill, EachOfFourRanksAmongSmallAllreduces) { KillEach(10'000, kSmall); }

}  // namespace
}  // namespace hvd::test
