// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "hvd/loop/loop.h"

namespace hvd::loop {
namespace {

constexpr Duration kForever{-1};
constexpr Duration kNone{0};

class EpollLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = CreateEpollLoop();
    ASSERT_TRUE(made);
    loop_ = std::move(*made);
    ASSERT_EQ(pipe2(pipe_, O_NONBLOCK | O_CLOEXEC), 0);
  }
  void TearDown() override {
    close(pipe_[0]);
    close(pipe_[1]);
  }
  void WriteByte() { ASSERT_EQ(write(pipe_[1], "x", 1), 1); }

  std::unique_ptr<Loop> loop_;
  int pipe_[2];
};

TEST_F(EpollLoopTest, AnIterationWithNothingToDoReturnsAtOnce) { EXPECT_FALSE(loop_->RunOnce(kNone)); }

TEST_F(EpollLoopTest, DeferredCallsRunInTheNextTurnInOrder) {
  std::vector<int> order;
  loop_->Defer([&] {
    order.push_back(1);
    loop_->Defer([&] { order.push_back(3); });
  });
  loop_->Defer([&] { order.push_back(2); });
  EXPECT_TRUE(order.empty());
  EXPECT_TRUE(loop_->RunOnce(kForever));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_TRUE(loop_->RunOnce(kForever));  // does not wait: something was deferred
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_FALSE(loop_->RunOnce(kNone));
}

TEST_F(EpollLoopTest, TimersRunInOrderOnceAndNotEarly) {
  std::vector<int> order;
  const Time start = loop_->Now();
  const Time due = start + std::chrono::milliseconds(2);
  loop_->At(due + std::chrono::milliseconds(1), [&] { order.push_back(2); });
  loop_->At(due, [&] {
    EXPECT_GE(loop_->Now(), due);
    order.push_back(1);
  });
  while (order.size() < 2) loop_->RunOnce(kForever);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_FALSE(loop_->RunOnce(kNone));
}

TEST_F(EpollLoopTest, ACancelledTimerDoesNotRunAlsoWhenBothAreDue) {
  bool ran = false;
  TimerId second = 0;
  loop_->At(loop_->Now(), [&] { loop_->Cancel(second); });
  second = loop_->At(loop_->Now(), [&] { ran = true; });
  EXPECT_TRUE(loop_->RunOnce(kForever));
  EXPECT_FALSE(loop_->RunOnce(kNone));
  EXPECT_FALSE(ran);
}

TEST_F(EpollLoopTest, ATimerThatSetsItselfAgainCannotHoldTheLoop) {
  int runs = 0;
  std::function<void()> again = [&] {
    ++runs;
    loop_->At(loop_->Now(), again);
  };
  loop_->At(loop_->Now(), again);
  loop_->RunOnce(kNone);
  EXPECT_EQ(runs, 1);
  loop_->RunOnce(kNone);
  EXPECT_EQ(runs, 2);
}

TEST_F(EpollLoopTest, AWatchedDescriptorIsHandledWhileItIsReady) {
  int calls = 0;
  ASSERT_TRUE(loop_->Watch(pipe_[0], EPOLLIN, [&](uint32_t events) {
    EXPECT_TRUE(events & EPOLLIN);
    ++calls;
  }));
  EXPECT_EQ(loop_->watched(), 1);
  EXPECT_FALSE(loop_->RunOnce(kNone));
  WriteByte();
  EXPECT_TRUE(loop_->RunOnce(kForever));
  EXPECT_TRUE(loop_->RunOnce(kNone));  // level-triggered
  EXPECT_EQ(calls, 2);
  ASSERT_TRUE(loop_->Rearm(pipe_[0], 0));
  EXPECT_FALSE(loop_->RunOnce(kNone));
  loop_->Unwatch(pipe_[0]);
  EXPECT_EQ(loop_->watched(), 0);
}

TEST_F(EpollLoopTest, WatchingTwiceOrRearmingTheUnwatchedIsAnError) {
  ASSERT_TRUE(loop_->Watch(pipe_[0], EPOLLIN, [](uint32_t) {}));
  EXPECT_FALSE(loop_->Watch(pipe_[0], EPOLLIN, [](uint32_t) {}));
  EXPECT_FALSE(loop_->Rearm(pipe_[1], EPOLLIN));
  EXPECT_FALSE(loop_->Watch(-1, EPOLLIN, [](uint32_t) {}));
  loop_->Unwatch(pipe_[1]);
}

// Two ready descriptors whose handlers unwatch each other: only one may run.
TEST_F(EpollLoopTest, AHandlerDoesNotRunAfterUnwatchEvenIfItsEventWasFetched) {
  const int other = eventfd(1, EFD_CLOEXEC);
  int calls = 0;
  ASSERT_TRUE(loop_->Watch(pipe_[0], EPOLLIN, [&](uint32_t) {
    ++calls;
    loop_->Unwatch(other);
    loop_->Unwatch(pipe_[0]);
  }));
  ASSERT_TRUE(loop_->Watch(other, EPOLLIN, [&](uint32_t) {
    ++calls;
    loop_->Unwatch(pipe_[0]);
    loop_->Unwatch(other);
  }));
  WriteByte();
  loop_->RunOnce(kForever);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(loop_->watched(), 0);
  close(other);
}

// A descriptor number that is reused within a turn must not get the event of its predecessor.
TEST_F(EpollLoopTest, AFetchedEventDoesNotReachANewWatchOfTheSameNumber) {
  const int other = eventfd(1, EFD_CLOEXEC);
  bool stale = false;
  int calls = 0;
  auto swap = [&](int mine, int theirs) {
    return [&, mine, theirs](uint32_t) {
      ++calls;
      loop_->Unwatch(mine);
      loop_->Unwatch(theirs);
      ASSERT_TRUE(loop_->Watch(theirs, EPOLLOUT & 0, [&](uint32_t) { stale = true; }));
    };
  };
  ASSERT_TRUE(loop_->Watch(pipe_[0], EPOLLIN, swap(pipe_[0], other)));
  ASSERT_TRUE(loop_->Watch(other, EPOLLIN, swap(other, pipe_[0])));
  WriteByte();
  loop_->RunOnce(kForever);
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(stale);
  close(other);
}

TEST_F(EpollLoopTest, WakeEndsAWaitFromAnotherThread) {
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> stored{0};
    std::thread waker([&] {
      stored.store(1, std::memory_order_relaxed);
      loop_->Wake();
    });
    while (stored.load(std::memory_order_relaxed) == 0) loop_->RunOnce(kForever);
    waker.join();
    loop_->RunOnce(Duration(1));  // takes a wake that came after the last look
  }
}

TEST_F(EpollLoopTest, AWakeBeforeTheWaitIsNotLostAndATurnThatDoesNotWaitLeavesIt) {
  loop_->Wake();
  loop_->Wake();
  EXPECT_FALSE(loop_->RunOnce(kNone));
  EXPECT_FALSE(loop_->RunOnce(kForever));
  loop_->Wake();
  EXPECT_FALSE(loop_->RunOnce(kForever));
}

TEST_F(EpollLoopTest, ATurnThatDoesNotWaitAndTakesAWakeSaysSo) {
  ASSERT_TRUE(loop_->Watch(pipe_[0], EPOLLIN, [](uint32_t) {}));
  loop_->Wake();
  EXPECT_TRUE(loop_->RunOnce(kNone));
  EXPECT_FALSE(loop_->RunOnce(kNone));
  loop_->WakeIn(std::chrono::milliseconds(1));
  while (!loop_->RunOnce(kNone)) {
  }
  loop_->Wake();
  EXPECT_FALSE(loop_->RunOnce(kForever)) << "a wait that a wake ended";
}

TEST_F(EpollLoopTest, WakeInEndsAWaitNotEarlyAndAsOftenAsItIsCalled) {
  for (int round = 0; round < 2; ++round) {
    const Time due = loop_->Now() + std::chrono::milliseconds(2);
    loop_->WakeIn(std::chrono::milliseconds(2));
    loop_->WakeIn(std::chrono::hours(1));  // one is set already
    EXPECT_FALSE(loop_->RunOnce(kForever));
    EXPECT_GE(loop_->Now(), due);
  }
  loop_->WakeIn(kNone);
  EXPECT_FALSE(loop_->RunOnce(kForever));
}

TEST_F(EpollLoopTest, ADoorbellRungByDescriptorWakesToo) {
  const uint64_t one = 1;
  ASSERT_EQ(write(loop_->wake_fd(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  EXPECT_FALSE(loop_->RunOnce(kForever));
  EXPECT_TRUE(fcntl(loop_->wake_fd(), F_GETFD) & FD_CLOEXEC);
  EXPECT_TRUE(fcntl(loop_->wake_fd(), F_GETFL) & O_NONBLOCK);
}

}  // namespace
}  // namespace hvd::loop
