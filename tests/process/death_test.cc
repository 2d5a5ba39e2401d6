// SPDX-License-Identifier: Apache-2.0
// Ranks that die, stop, crash or leave in the middle of a collective: the others get an error that names the rank,
// soon, and nothing is left behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <new>
#include <random>
#include <thread>

#include "tests/support/job.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

using Clock = std::chrono::steady_clock;

// Memory that parent and children share.
struct Shared {
  std::atomic<int> started;
  std::atomic<int64_t> died_at_ns;
  std::atomic<int64_t> noticed_ns[8];
};

Shared* MakeShared() {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Shared{};
}

int64_t NowNs() { return Clock::now().time_since_epoch().count(); }

// Any of the operations, blocking.
int RunOne(int op, std::vector<float>& data) {
  if (op == HVD_ALLREDUCE) return Sum(nullptr, "big", data.data(), data.size());
  std::vector<int64_t> shape;
  if (op != HVD_BARRIER) shape = {static_cast<int64_t>(data.size())};
  Request request(op, "big", shape, data.data());
  request->root_rank = 1;
  hvd_output output = EmptyOutput();
  const int status = hvd_run(nullptr, request, &output);
  if (op == HVD_ALLGATHER && status == HVD_OK) hvd_free(output.data);
  return status;
}

// Repeats one operation until it fails; checks that the error blames `victim`.
int RunUntilBlamed(Shared* shared, int rank, int victim, size_t count, int op = HVD_ALLREDUCE) {
  std::vector<float> data(count, 1.f);
  for (;;) {
    shared->started.fetch_or(1 << rank);
    const int status = RunOne(op, data);
    if (status == HVD_OK) continue;
    shared->noticed_ns[rank] = NowNs();
    EXPECT_EQ(status, HVD_UNKNOWN);
    const std::string text = hvd_last_error();
    EXPECT_NE(text.find("Horovod has been shut down"), std::string::npos) << text;
    EXPECT_NE(text.find("rank " + std::to_string(victim)), std::string::npos) << text;
    EXPECT_EQ(hvd_health(nullptr), HVD_UNKNOWN);
    EXPECT_EQ(Sum(nullptr, "later", data.data(), 1), HVD_UNKNOWN);
    return 0;
  }
}

int OpenDescriptors() {
  return static_cast<int>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

struct Fault {
  const char* name;
  int signal;  // sent to the victim; 0: see `code`
};

class DeathTest : public ::testing::TestWithParam<Fault> {};
INSTANTIATE_TEST_SUITE_P(Faults, DeathTest,
                         ::testing::Values(Fault{"kill", SIGKILL}, Fault{"segv", SIGSEGV}, Fault{"abort", SIGABRT},
                                           Fault{"term", SIGTERM}),
                         [](const auto& info) { return info.param.name; });

// Each of four ranks in turn, at random moments of each operation: 128 faults in all.
TEST_P(DeathTest, EverySurvivorIsToldWhoDied) {
  const int descriptors = OpenDescriptors();
  std::mt19937 random(GetParam().signal);
  double worst = 0;
  for (int round = 0; round < 32; ++round) {
    const int victim = round % 4;
    const int op = round / 4 % 4;  // HVD_ALLREDUCE to HVD_BARRIER
    Shared* shared = MakeShared();
    const int delay_us = static_cast<int>(random() % 20000);
    const auto results = RunProcesses(
        4,
        [&](int rank) {
          const rlimit no_core{0, 0};
          setrlimit(RLIMIT_CORE, &no_core);
          return RunUntilBlamed(shared, rank, victim, 1 << 20, op);
        },
        [&](const std::vector<int>& pids) {
          while (shared->started != 15) usleep(1000);
          usleep(delay_us);
          shared->died_at_ns = NowNs();
          kill(pids[victim], GetParam().signal);
        });
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_FALSE(results[rank].killed) << "rank " << rank << " hangs";
      if (rank == victim) {
        EXPECT_TRUE(WIFSIGNALED(results[rank].status));
        continue;
      }
      EXPECT_TRUE(WIFEXITED(results[rank].status) && WEXITSTATUS(results[rank].status) == 0)
          << "rank " << rank << " status " << results[rank].status;
      worst = std::max(worst, (shared->noticed_ns[rank] - shared->died_at_ns) * 1e-9);
    }
    munmap(shared, sizeof *shared);
  }
  printf("worst time from signal to error: %.1f ms\n", worst * 1e3);
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST(Death, ARankWithForkedChildrenIsNoticed) {
  Shared* shared = MakeShared();
  const auto results = RunProcesses(
      3,
      [&](int rank) {
        if (rank == 1) {
          const pid_t parent = getpid();
          for (int i = 0; i < 4; ++i) {
            if (fork() == 0) {
              prctl(PR_SET_PDEATHSIG, SIGKILL);
              if (getppid() != parent) _exit(0);  // killed before the line above: no signal comes
              float value = 1;
              // A child must get a clear error, not a hang or a wrong sum.
              if (Sum(nullptr, "in child", &value, 1) != HVD_FAILED_PRECONDITION) _exit(1);
              pause();
              _exit(0);
            }
          }
        }
        return RunUntilBlamed(shared, rank, 1, 1 << 20);
      },
      [&](const std::vector<int>& pids) {
        while (shared->started != 7) usleep(1000);
        kill(pids[1], SIGKILL);
      });
  for (int rank : {0, 2}) EXPECT_EQ(results[rank].status, 0) << rank;
}

TEST(Death, AStoppedRankIsDeclaredLostKilledAndFenced) {
  setenv("HOROVOD_HEARTBEAT_TIMEOUT_SECONDS", "1", 1);
  Shared* shared = MakeShared();
  const auto results = RunProcesses(
      3, [&](int rank) { return RunUntilBlamed(shared, rank, 2, 4 << 20); },
      [&](const std::vector<int>& pids) {
        while (shared->started != 7) usleep(1000);
        kill(pids[2], SIGSTOP);
      });
  unsetenv("HOROVOD_HEARTBEAT_TIMEOUT_SECONDS");
  for (int rank : {0, 1}) EXPECT_EQ(results[rank].status, 0) << rank;
  EXPECT_TRUE(WIFSIGNALED(results[2].status) && WTERMSIG(results[2].status) == SIGKILL);
}

TEST(Death, AnIdleRankIsUnharmedByOneThatLeaves) {
  const auto results = RunProcesses(3,
                                    [&](int rank) {
                                      float value = 1;
                                      EXPECT_EQ(Sum(nullptr, "all", &value, 1), HVD_OK) << hvd_last_error();
                                      if (rank == 2) return 0;  // leaves
                                      for (int i = 0; i < 2000; ++i) {
                                        float small = 1;
                                        EXPECT_EQ(Sum(nullptr, "two", &small, 1, 1), HVD_OK) << hvd_last_error();
                                        EXPECT_EQ(small, 2.f);
                                      }
                                      // An operation with the one that left fails, and says so.
                                      for (int i = 0; i < 2; ++i) {
                                        EXPECT_EQ(Sum(nullptr, "with the gone", &value, 1), HVD_UNKNOWN);
                                        EXPECT_NE(std::string(hvd_last_error()).find("rank 2 left"), std::string::npos)
                                            << hvd_last_error();
                                      }
                                      EXPECT_EQ(Sum(nullptr, "two", &value, 1, 1), HVD_OK) << hvd_last_error();
                                      return 0;
                                    },
                                    {}, {.sets = {{0, 1}}});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(results[rank].status, 0) << rank;
}

TEST(Death, AcrossHostsTheConnectionTells) {
  Shared* shared = MakeShared();
  const auto results = RunProcesses(
      4, [&](int rank) { return RunUntilBlamed(shared, rank, 3, 1 << 20); },
      [&](const std::vector<int>& pids) {
        while (shared->started != 15) usleep(1000);
        kill(pids[3], SIGKILL);
      },
      {.host_ids = {"a", "a", "b", "b"}});
  for (int rank : {0, 1, 2}) EXPECT_EQ(results[rank].status, 0) << rank;
}

TEST(Life, InitAndShutdownTwoHundredTimesAloneAndTogether) {
  const std::string where = "127.0.0.1:" + std::to_string(FreePort());
  const auto results = RunProcesses(2, [&](int rank) {
    hvd_shutdown(nullptr);
    const int descriptors = OpenDescriptors();
    for (int i = 0; i < 200; ++i) {
      // Nothing is said between init and shutdown: the faster rank is at the next meeting before the slower has left
      // the last one.
      hvd_init_options options;
      hvd_init_options_default(&options);
      options.rank = i % 4 == 3 ? 0 : rank;
      options.size = i % 4 == 3 ? 1 : 2;
      options.rendezvous = where.c_str();
      EXPECT_EQ(hvd_init(&options, nullptr), HVD_OK) << "round " << i << " rank " << rank << ": " << hvd_last_error();
      if (testing::Test::HasFailure()) return 1;
      hvd_shutdown(nullptr);
    }
    EXPECT_EQ(OpenDescriptors(), descriptors);
    return 0;
  });
  for (const auto& result : results) EXPECT_EQ(result.status, 0);
}

TEST(Life, GenerationsOfTwoRanks) {
  char folder[] = "/tmp/hvd-gen-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string where = std::string("file://") + folder;
  const auto results = RunProcesses(2, [&](int rank) {
    hvd_shutdown(nullptr);
    auto* kept = static_cast<float*>(hvd_alloc(1 << 20));
    const int descriptors = OpenDescriptors();
    for (int generation = 1; generation <= 60; ++generation) {
      hvd_init_options options;
      hvd_init_options_default(&options);
      options.rank = rank;
      options.size = 2;
      options.rendezvous = where.c_str();
      options.generation = generation;
      EXPECT_EQ(hvd_init(&options, nullptr), HVD_OK) << hvd_last_error();
      for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < (1 << 18); ++j) kept[j] = 1.f;
        EXPECT_EQ(Sum(nullptr, "kept", kept, 1 << 18), HVD_OK) << hvd_last_error();
        EXPECT_EQ(kept[(1 << 18) - 1], 2.f);
      }
      hvd_shutdown(nullptr);
    }
    EXPECT_EQ(OpenDescriptors(), descriptors);
    hvd_free(kept);
    return 0;
  });
  for (const auto& result : results) EXPECT_EQ(result.status, 0);
  std::filesystem::remove_all(folder);
}

TEST(Life, ATimedOutOperationIsDefined) {
  const auto results = RunProcesses(2, [&](int rank) {
    std::vector<float> data(200000, 1.f + rank);
    Request request(HVD_ALLREDUCE, "late", {static_cast<int64_t>(data.size())}, data.data());
    float value = 1;
    if (rank == 0) {
      request->timeout_s = 0.05;
      EXPECT_EQ(hvd_run(nullptr, request, nullptr), HVD_DEADLINE_EXCEEDED) << hvd_last_error();
      EXPECT_EQ(data[0], 1.f);
      data.assign(data.size(), -1.f);  // ours again
      EXPECT_EQ(hvd_run(nullptr, request, nullptr), HVD_INVALID_ARGUMENT);
      EXPECT_NE(std::string(hvd_last_error()).find("timed out"), std::string::npos) << hvd_last_error();
      EXPECT_EQ(Sum(nullptr, "gate", &value, 1), HVD_OK) << hvd_last_error();
      EXPECT_EQ(Sum(nullptr, "gate", &value, 1), HVD_OK) << hvd_last_error();
      EXPECT_EQ(data[0], -1.f);
    } else {
      EXPECT_EQ(Sum(nullptr, "gate", &value, 1), HVD_OK) << hvd_last_error();
      EXPECT_EQ(hvd_run(nullptr, request, nullptr), HVD_OK) << hvd_last_error();
      EXPECT_EQ(data[199999], 3.f);
      EXPECT_EQ(Sum(nullptr, "gate", &value, 1), HVD_OK) << hvd_last_error();
    }
    // Everybody is through with the late one: the name is free again.
    request->timeout_s = 0;
    data.assign(data.size(), 1.f);
    EXPECT_EQ(hvd_run(nullptr, request, nullptr), HVD_OK) << hvd_last_error();
    EXPECT_EQ(data[0], 2.f);
    return 0;
  });
  for (const auto& result : results) EXPECT_EQ(result.status, 0);
}

TEST(Life, ACallbackThatWaitsDoesNotMakeTheRankLookDead) {
  setenv("HOROVOD_HEARTBEAT_TIMEOUT_SECONDS", "0.5", 1);
  const auto results = RunProcesses(2, [&](int rank) {
    static std::atomic<bool> released{false};
    float first = 1;
    Request request(HVD_ALLREDUCE, "called back", {1}, &first);
    request->done = [](void*, hvd_handle, int32_t, const char*) {
      while (!released) usleep(1000);
    };
    hvd_handle handle = 0;
    EXPECT_EQ(hvd_submit(nullptr, request, &handle), HVD_OK);
    EXPECT_EQ(hvd_wait(nullptr, handle, -1), HVD_OK);
    const auto until = Clock::now() + std::chrono::milliseconds(1500);
    // Rank 0 waits for rank 1, whose callback hangs and which computes for longer than the heartbeat.
    while (rank == 1 && Clock::now() < until) usleep(1000);
    float value = 1;
    EXPECT_EQ(Sum(nullptr, "after", &value, 1), HVD_OK) << hvd_last_error();
    released = true;
    hvd_release(nullptr, handle);
    return 0;
  });
  unsetenv("HOROVOD_HEARTBEAT_TIMEOUT_SECONDS");
  for (const auto& result : results) EXPECT_EQ(result.status, 0);
}

}  // namespace
}  // namespace hvd::test
