// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/event_queue.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hvd::trace {
namespace {

bool Put(EventQueue<int>& queue, int value) {
  return queue.Push([&](int& entry) { entry = value; });
}
int Take(EventQueue<int>& queue) {
  int value = -1;
  queue.Pop([&](const int& entry) { value = entry; });
  return value;
}

TEST(EventQueue, FirstInFirstOutManyTimesRound) {
  EventQueue<int> queue(4);
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Put(queue, 10 * round + i));
    for (int i = 0; i < 3; ++i) ASSERT_EQ(Take(queue), 10 * round + i);
    ASSERT_TRUE(queue.empty());
    ASSERT_EQ(Take(queue), -1);
  }
}

TEST(EventQueue, WhatDoesNotFitIsCounted) {
  EventQueue<int> queue(3);
  ASSERT_EQ(queue.capacity(), 4u);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Put(queue, i), i < 4);
  EXPECT_EQ(queue.dropped(), 2u);
  EXPECT_TRUE(queue.half_full());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Take(queue), i);
  EXPECT_TRUE(Put(queue, 7));
  EXPECT_EQ(Take(queue), 7);
}

TEST(EventQueue, EachThreadsEntriesStayInOrder) {
  EventQueue<int> queue(64);
  constexpr int kThreads = 3;
  constexpr int kEach = 20000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        while (!Put(queue, t * kEach + i)) std::this_thread::yield();
      }
    });
  }
  std::vector<int> next(kThreads, 0);
  for (int taken = 0; taken < kThreads * kEach;) {
    const int value = Take(queue);
    if (value < 0) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(value % kEach, next[static_cast<size_t>(value / kEach)]++);
    ++taken;
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace hvd::trace
