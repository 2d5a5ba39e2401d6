// SPDX-License-Identifier: Apache-2.0
// Forked children of a process that uses hvd get an error from every call, whatever kind of engine there was; and an
// init that nobody wants any more.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/support/job.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

// A forked child that runs `body`; a failed EXPECT in it ends it with 99, and a hang with a signal.
int StartChild(const std::function<void()>& body) {
  const int pid = fork();
  if (pid == 0) {
    alarm(60);
    body();
    fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 99 : 0);
  }
  return pid;
}

int ExitCode(int pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

int InChild(const std::function<void()>& body) { return ExitCode(StartChild(body)); }

void ExpectForkedErrors(hvd_context* ctx) {
  const auto is_told = [](int status) {
    EXPECT_EQ(status, HVD_FAILED_PRECONDITION);
    EXPECT_NE(std::string(hvd_last_error()).find("forked"), std::string::npos) << hvd_last_error();
  };
  int32_t number = 0;
  float value = 1;
  hvd_handle handle = 0;
  uint64_t id = 0;
  is_told(hvd_query(ctx, HVD_RANK, &number));
  is_told(hvd_health(ctx));
  is_told(Sum(ctx, "x", &value, 1));
  is_told(hvd_submit(ctx, Request(HVD_ALLREDUCE, "x", {1}, &value), &handle));
  is_told(hvd_prepare(ctx, Request(HVD_ALLREDUCE, "x", {1}, &value), &id));
  is_told(hvd_wait(ctx, 1, -1));
  is_told(hvd_release(ctx, 1));
  is_told(hvd_process_set_count(ctx, &number));
  is_told(hvd_init(nullptr, nullptr));
  hvd_store* store = nullptr;
  is_told(hvd_store_connect("127.0.0.1:1", nullptr, 1, &store));
  EXPECT_EQ(hvd_alloc(64), nullptr);
  is_told(hvd_last_status());
  EXPECT_EQ(hvd_is_initialized(ctx), 0);
  EXPECT_EQ(hvd_shutdown(ctx), HVD_OK) << "there is nothing to end";
}

TEST(Fork, OfAProcessWithContextsOnly) {
  EXPECT_EQ(InChild([] {
              std::atomic<int> ready = 0;
              std::atomic<bool> forked = false;
              RunThreads(2, [&](int rank, hvd_context* ctx) {
                // A sanitizer's allocator does not survive a fork amid another thread's malloc: all are quiet then.
                ++ready;
                if (rank == 1) {
                  while (!forked) usleep(1000);
                } else {
                  while (ready < 2) usleep(1000);
                  usleep(50'000);
                  EXPECT_EQ(InChild([&] { ExpectForkedErrors(ctx); }), 0);
                  EXPECT_EQ(InChild([&] { ExpectForkedErrors(nullptr); }), 0);
                  forked = true;
                }
                float value = 1;  // the parent is unharmed
                EXPECT_EQ(Sum(ctx, "after", &value, 1), HVD_OK) << hvd_last_error();
              });
            }),
            0);
}

TEST(Fork, OfAProcessWithMemoryOnly) {
  EXPECT_EQ(InChild([] {
              void* memory = hvd_alloc(1 << 20);
              ASSERT_NE(memory, nullptr);
              EXPECT_EQ(InChild([&] {
                          EXPECT_EQ(hvd_alloc(64), nullptr);
                          EXPECT_EQ(hvd_last_status(), HVD_FAILED_PRECONDITION) << hvd_last_error();
                          EXPECT_NE(std::string(hvd_last_error()).find("forked"), std::string::npos);
                          hvd_free(memory);
                        }),
                        0);
              hvd_free(memory);
            }),
            0);
}

TEST(Init, IsGivenUpByAShutdownFromAnotherThread) {
  char folder[] = "/tmp/hvd-init-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string where = std::string("file://") + folder;
  const auto init = [&](int rank) {
    hvd_init_options options;
    hvd_init_options_default(&options);
    options.rank = rank;
    options.size = 2;
    options.rendezvous = where.c_str();
    options.timeout_s = 120;
    return hvd_init(&options, nullptr);
  };
  int gate[2];
  ASSERT_EQ(pipe(gate), 0);
  const auto peer = [&] {
    char byte = 0;
    EXPECT_EQ(read(gate[0], &byte, 1), 1);
    EXPECT_EQ(init(1), HVD_OK) << hvd_last_error();
    hvd_shutdown(nullptr);
  };
  const auto first = [&] {
    std::thread pending([&] {
      EXPECT_EQ(init(0), HVD_ABORTED) << hvd_last_error();
      EXPECT_EQ(hvd_is_initialized(nullptr), 0);
    });
    while (std::filesystem::is_empty(folder)) usleep(1000);  // until it has said that it is there
    EXPECT_EQ(hvd_shutdown(nullptr), HVD_OK);
    // Only now the other one comes: had the shutdown waited for the init, nothing would ever move.
    EXPECT_EQ(write(gate[1], "x", 1), 1);
    pending.join();
    // And a new one works.
    hvd_init_options options;
    hvd_init_options_default(&options);
    options.rank = 0;
    options.size = 1;
    EXPECT_EQ(hvd_init(&options, nullptr), HVD_OK) << hvd_last_error();
    EXPECT_EQ(hvd_shutdown(nullptr), HVD_OK);
  };
  const int children[] = {StartChild(first), StartChild(peer)};
  for (const int child : children) EXPECT_EQ(ExitCode(child), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hvd::test
