// SPDX-License-Identifier: Apache-2.0
// What a caller's own functions may do while the engine calls them: completion callbacks may wait, nothing may end the
// engine under itself, and no memory that a callback uses is given back while it runs.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include "tests/support/job.h"
#include "tests/support/request.h"

namespace hvd::test {
namespace {

// A callback with an end that a test can wait for.
struct Callback {
  std::function<void()> body;
  std::promise<void> over;
  hvd_context* releases = nullptr;

  static void Done(void* arg, hvd_handle handle, int32_t, const char*) {
    auto* self = static_cast<Callback*>(arg);
    self->body();
    if (self->releases != nullptr) hvd_release(self->releases, handle);
    self->over.set_value();
  }
  // Submits a sum that calls it, and returns when it has returned.
  void Call(hvd_context* ctx) {
    float value = 1;
    Request request(HVD_ALLREDUCE, "calls back", {1}, &value);
    request->done = &Callback::Done;
    request->done_arg = this;
    hvd_handle handle = 0;
    ASSERT_EQ(hvd_submit(ctx, request, &handle), HVD_OK) << hvd_last_error();
    over.get_future().wait();
    hvd_release(ctx, handle);
  }
};

// Memory for gathered values.
struct Memory {
  std::vector<float> values;
  std::function<void()> before = [] {};

  static void* Alloc(void* arg, uint64_t bytes, const int64_t*, int32_t) {
    auto* self = static_cast<Memory*>(arg);
    self->before();
    self->values.resize(bytes / sizeof(float));
    return self->values.data();
  }
  void Serve(Request& request) {
    request->alloc = &Memory::Alloc;
    request->alloc_arg = this;
  }
};

TEST(Callbacks, RunWithSignalsBlockedButForFaults) {
  RunThreads(2, [](int, hvd_context* ctx) {
    Callback callback;
    sigset_t mask;
    callback.body = [&] { pthread_sigmask(SIG_BLOCK, nullptr, &mask); };
    callback.Call(ctx);
    for (const int signo : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGUSR2})
      EXPECT_EQ(sigismember(&mask, signo), 1) << signo;
    for (const int signo : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) EXPECT_EQ(sigismember(&mask, signo), 0) << signo;
  });
}

TEST(Callbacks, DoneIsCalledOnceForWhatItsCallerDidNotWaitForAndNeverForTheRest) {
  RunThreads(2, [](int rank, hvd_context* ctx) {
    for (int round = 0; round < 2000; ++round) {
      // Sometimes one rank comes late, so that the other one's time is over, or is just about to be.
      if (round % 7 == rank) std::this_thread::sleep_for(std::chrono::microseconds(round % 90));
      float value = 1;
      std::atomic<int> calls{0};
      Callback callback{[&] { calls.fetch_add(1); }, {}};
      callback.releases = ctx;  // perhaps before its caller has the handle
      Request request(HVD_ALLREDUCE, "now or later", {1}, &value);
      request->done = &Callback::Done;
      request->done_arg = &callback;
      hvd_handle handle = 0;
      const int status = hvd_run_for(ctx, request, 1e-6, nullptr, &handle);
      if (status == HVD_IN_PROGRESS) {
        callback.over.get_future().wait();
        ASSERT_NE(handle, 0u);
      } else {
        ASSERT_EQ(status, HVD_OK) << hvd_last_error();
      }
      ASSERT_EQ(calls.load(), status == HVD_IN_PROGRESS ? 1 : 0);
      ASSERT_EQ(value, 2);
    }
  });
}

TEST(Callbacks, DoneMayRunAnOperationThatNeedsMemory) {
  RunThreads(2, [](int rank, hvd_context* ctx) {
    for (int round = 0; round < 3; ++round) {  // a new name, then an announced one
      const float mine = static_cast<float>(rank);
      Memory memory;
      int status = -1;
      Callback callback{[&] {
                          Request gather(HVD_ALLGATHER, "inside", {1}, &mine);
                          memory.Serve(gather);
                          status = hvd_run(ctx, gather, nullptr);
                        },
                        {}};
      callback.Call(ctx);
      EXPECT_EQ(status, HVD_OK);
      EXPECT_EQ(memory.values, (std::vector<float>{0, 1}));
    }
  });
}

TEST(Callbacks, DoneMayWaitForOperationsThatNeedMemoryInAnyOrder) {
  RunThreads(2, [](int rank, hvd_context* ctx) {
    for (int round = 0; round < 3; ++round) {
      const float mine = static_cast<float>(rank);
      Memory first, second;
      hvd_handle handles[2] = {};
      int status[2] = {-1, -1};
      std::promise<void> submitted;
      Callback callback{[&] {
                          submitted.get_future().wait();
                          // The second cannot start before the first, whose memory nobody but this thread can ask for.
                          status[1] = hvd_wait(ctx, handles[1], -1);
                          status[0] = hvd_wait(ctx, handles[0], -1);
                        },
                        {}};
      std::thread caller([&] { callback.Call(ctx); });
      Memory* memories[] = {&first, &second};
      for (int i = 0; i < 2; ++i) {
        Request gather(HVD_ALLGATHER, i == 0 ? "first" : "second", {1}, &mine);
        memories[i]->Serve(gather);
        ASSERT_EQ(hvd_submit(ctx, gather, &handles[i]), HVD_OK) << hvd_last_error();
      }
      submitted.set_value();
      caller.join();
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(status[i], HVD_OK);
        EXPECT_EQ(memories[i]->values, (std::vector<float>{0, 1}));
        hvd_release(ctx, handles[i]);
      }
    }
  });
}

TEST(Callbacks, AllocMustNotWaitAndIsToldSo) {
  RunThreads(2, [](int rank, hvd_context* ctx) {
    const float mine = static_cast<float>(rank);
    float other = 1;
    Memory memory;
    std::atomic<hvd_handle> self{0};
    int run = -1, wait = -1, poll = -1;
    std::string text;
    memory.before = [&] {
      while (self == 0) std::this_thread::yield();
      run = Sum(ctx, "not in alloc", &other, 1);
      text = hvd_last_error();
      wait = hvd_wait(ctx, self, -1);
      poll = hvd_poll(ctx, self);
    };
    Request gather(HVD_ALLGATHER, "gather", {1}, &mine);
    memory.Serve(gather);
    hvd_handle handle = 0;
    ASSERT_EQ(hvd_submit(ctx, gather, &handle), HVD_OK) << hvd_last_error();
    self = handle;
    EXPECT_EQ(hvd_wait(ctx, handle, -1), HVD_OK) << hvd_last_error();
    EXPECT_EQ(memory.values, (std::vector<float>{0, 1}));
    EXPECT_EQ(run, HVD_FAILED_PRECONDITION);
    EXPECT_NE(text.find("hvd_run in an alloc callback"), std::string::npos) << text;
    EXPECT_EQ(wait, HVD_FAILED_PRECONDITION);
    EXPECT_EQ(poll, HVD_IN_PROGRESS);
    hvd_release(ctx, handle);
  });
}

TEST(Callbacks, NeitherEndNorStartAnEngine) {
  RunThreads(2, [](int, hvd_context* ctx) {
    int own = -1, process = -1, init = -1;
    std::string text;
    Callback callback{[&] {
                        own = hvd_shutdown(ctx);
                        text = hvd_last_error();
                        process = hvd_shutdown(nullptr);
                        init = hvd_init(nullptr, nullptr);
                      },
                      {}};
    callback.Call(ctx);
    EXPECT_EQ(own, HVD_FAILED_PRECONDITION);
    EXPECT_NE(text.find("hvd_shutdown in a callback"), std::string::npos) << text;
    EXPECT_EQ(process, HVD_FAILED_PRECONDITION);
    EXPECT_EQ(init, HVD_FAILED_PRECONDITION);
    float value = 1;
    EXPECT_EQ(Sum(ctx, "goes on", &value, 1), HVD_OK) << hvd_last_error();
  });
}

TEST(Callbacks, AnOperationThatFailsIsOverOnlyWhenItsAllocHasReturned) {
  const float mine = 1;
  hvd_context* ctx = nullptr;
  hvd_init_options options;
  hvd_init_options_default(&options);
  options.rank = 0;
  options.size = 1;
  ASSERT_EQ(hvd_init(&options, &ctx), HVD_OK) << hvd_last_error();
  Memory memory;
  std::promise<void> entered, released;
  std::atomic<bool> returned{false};
  memory.before = [&] {
    entered.set_value();
    released.get_future().wait();
    returned = true;
  };
  Request gather(HVD_ALLGATHER, "gather", {1}, &mine);
  memory.Serve(gather);
  hvd_handle handle = 0;
  ASSERT_EQ(hvd_submit(ctx, gather, &handle), HVD_OK) << hvd_last_error();
  std::thread waiter([&] {
    const int status = hvd_wait(ctx, handle, -1);
    // On a busy machine the end may come before this wait has begun; then it says nothing of the operation.
    if (status == HVD_FAILED_PRECONDITION) return;
    EXPECT_EQ(status, HVD_UNKNOWN);
    EXPECT_TRUE(returned) << "the operation was over while its callback ran";
  });
  entered.get_future().wait();
  std::thread ender([&] { EXPECT_EQ(hvd_shutdown(ctx), HVD_OK); });
  // The context lives until the wait has returned.
  while (hvd_is_initialized(ctx) == 1) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // gives a wrong implementation time to show it
  released.set_value();
  waiter.join();
  ender.join();
}

}  // namespace
}  // namespace hvd::test
