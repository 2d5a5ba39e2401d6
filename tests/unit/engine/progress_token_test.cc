// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/progress_token.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "hvd/loop/epoll_loop.h"

namespace hvd::engine {
namespace {

class NoWork final : public EngineWork {
 public:
  bool Progress() override { return false; }
  bool unfinished() const override { return false; }
  bool has_submissions() const override { return false; }
  Time NextEvent(Time /*now*/) override { return Time::max(); }
};

class ProgressTokenTest : public ::testing::Test {
 protected:
  ProgressTokenTest() {
    auto loop = loop::CreateEpollLoop();
    EXPECT_TRUE(loop);
    world_.loop = std::move(*loop);
  }

  void WaitForCaller() {
    while (!token_.has_waiters()) std::this_thread::yield();
  }
  void End(Operation* op) {
    op->over.store(true, std::memory_order_seq_cst);
    token_.NotifyWaiters();
  }

  World world_;
  NoWork work_;
  Completer completer_;
  ProgressToken token_{&world_, nullptr, &completer_, &work_};
};

TEST_F(ProgressTokenTest, OneThreadHoldsIt) {
  ASSERT_TRUE(token_.TryTake());
  EXPECT_FALSE(std::async(std::launch::async, [&] { return token_.TryTake(); }).get());
  token_.Return();
  EXPECT_TRUE(std::async(std::launch::async, [&] {
                const bool taken = token_.TryTake();
                if (taken) token_.Return();
                return taken;
              }).get());
}

TEST_F(ProgressTokenTest, AWaitingCallerGetsItBeforeTheEnginesThread) {
  Operation op;
  ASSERT_TRUE(token_.TryTake());
  std::atomic<bool> caller_had_it{false};
  auto caller = std::async(std::launch::async, [&] {
    const bool taken = token_.Take(&op, Time::max());
    caller_had_it = true;
    token_.Return();
    return taken;
  });
  WaitForCaller();
  auto thread = std::async(std::launch::async, [&] {
    const bool taken = token_.TakeForThread();
    const bool second = caller_had_it;
    token_.Return();
    return taken && second;
  });
  token_.Return();
  EXPECT_TRUE(caller.get());
  EXPECT_TRUE(thread.get());
}

TEST_F(ProgressTokenTest, ACallerWhoseOperationIsOverStopsWaiting) {
  Operation op;
  ASSERT_TRUE(token_.TryTake());
  auto caller = std::async(std::launch::async, [&] { return token_.Take(&op, Time::max()); });
  WaitForCaller();
  End(&op);
  EXPECT_FALSE(caller.get());
  token_.Return();
}

TEST_F(ProgressTokenTest, ACallerStopsWaitingWhenItsTimeHasCome) {
  Operation op;
  ASSERT_TRUE(token_.TryTake());
  const Time until = world_.loop->Now() + std::chrono::milliseconds(1);
  EXPECT_FALSE(std::async(std::launch::async, [&] { return token_.Take(&op, until); }).get());
  token_.Return();
}

TEST_F(ProgressTokenTest, StopSendsTheEnginesThreadAway) {
  ASSERT_TRUE(token_.TryTake());
  auto thread = std::async(std::launch::async, [&] { return token_.TakeForThread(); });
  token_.Stop();
  EXPECT_FALSE(thread.get());
  token_.Return();
}

}  // namespace
}  // namespace hvd::engine
