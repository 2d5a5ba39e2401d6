// SPDX-License-Identifier: Apache-2.0
// Every Pair under load: much at once, small beside large, two threads that sleep.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <random>
#include <thread>

#include "tests/conformance/pair_fixture.h"

namespace hvd::transport {
namespace {

INSTANTIATE_TEST_SUITE_P(All, PairTest, EveryKind(), NameOfKind);

TEST_P(PairTest, UnexpectedDataIsBoundedAndNoneIsLost) {
  constexpr int kCount = 300;  // 300 x 64 KiB is more than the window
  std::string data = Pattern(1, kEagerBytes);
  std::vector<Outcome> sent(kCount), received(kCount);
  std::vector<std::string> got(kCount, std::string(kEagerBytes, '\0'));
  for (auto& outcome : sent) pair(0).Send(5, Whole(data), outcome.Note());
  Settle();
  Settle();
  size_t taken = 0;
  for (const auto& outcome : sent) taken += outcome.runs;
  EXPECT_LE(taken * kEagerBytes, kEagerWindow);
  EXPECT_GT(taken, 0u);
  for (int i = 0; i < kCount; ++i) pair(1).Recv(5, Whole(got[i]), nullptr, received[i].Note());
  ASSERT_TRUE(RunUntil(
      [&] { return std::all_of(received.begin(), received.end(), [](const Outcome& o) { return o.runs == 1; }); }));
  for (int i = 0; i < kCount; ++i) EXPECT_TRUE(received[i].ok() && got[i] == data) << i;
  // The window is whole again: eager sends work as on the first day.
  Outcome again;
  pair(0).Send(6, Whole(data), again.Note());
  ASSERT_TRUE(RunUntil([&] { return again.ok(); }));
}

// One operation of the random test.
struct Planned {
  int from;
  Lane lane;
  std::string data;
  std::string got;
  Outcome sent, received;
};

std::vector<iovec> CutAtRandom(std::string& buffer, std::mt19937_64& random) {
  std::vector<iovec> pieces;
  size_t at = 0;
  while (at < buffer.size()) {
    const size_t length = std::min<size_t>(buffer.size() - at, random() % (buffer.size() / 3 + 2));
    pieces.push_back({buffer.data() + at, length});  // some are empty
    at += length;
  }
  return pieces;
}

size_t RandomSize(std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return random() % (8 << 20);
    case 2:
      return kEagerBytes - 1 + random() % 3;
    case 3:
      return kEagerBytes + random() % kEagerBytes;
    default:
      return random() % 5000;
  }
}

TEST_P(PairTest, RandomTrafficArrivesWholeAndInTheOrderOfItsLane) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::vector<std::unique_ptr<Planned>> plan;
  std::deque<std::pair<Planned*, bool>> calls[2];  // per side, in program order: what, and whether it sends
  for (int i = 0; i < 400; ++i) {
    auto op = std::make_unique<Planned>();
    op->from = static_cast<int>(random() % 2);
    op->lane = random() % 4 == 0 ? random() : random() % 3;
    op->data = Pattern(random(), RandomSize(random));
    op->got.assign(op->data.size(), '\0');
    calls[op->from].push_back({op.get(), true});
    calls[1 - op->from].push_back({op.get(), false});
    plan.push_back(std::move(op));
  }
  size_t chatter[2] = {0, 0};
  while (!calls[0].empty() || !calls[1].empty()) {
    const int side = static_cast<int>(random() % 2);
    for (size_t burst = random() % 20; burst > 0 && !calls[side].empty(); --burst) {
      const auto [op, sends] = calls[side].front();
      calls[side].pop_front();
      if (sends) {
        pair(side).Send(op->lane, CutAtRandom(op->data, random), op->sent.Note());
      } else {
        pair(side).Recv(op->lane, CutAtRandom(op->got, random), nullptr, op->received.Note());
      }
    }
    const std::string note = std::to_string(chatter[side]++);
    pair(side).SendMessage(AsBytes(note));
    for (size_t turns = random() % 3; turns > 0; --turns) ends_.RunOnce(static_cast<int>(random() % 2));
  }
  ASSERT_TRUE(RunUntil([&] {
    return std::all_of(plan.begin(), plan.end(), [](const auto& op) { return op->sent.runs && op->received.runs; }) &&
           messages_[0].size() == chatter[1] && messages_[1].size() == chatter[0];
  }));
  for (const auto& op : plan) ASSERT_TRUE(op->sent.ok() && op->received.ok() && op->got == op->data);
  for (const auto& heard : messages_) {
    for (size_t i = 0; i < heard.size(); ++i) ASSERT_EQ(heard[i], std::to_string(i));
  }
  EXPECT_TRUE(closed_[0].empty() && closed_[1].empty());
}

TEST_P(PairTest, SmallDataPassesLargeDataOnAnotherLane) {
  const size_t kLarge = std::string_view(GetParam().name) == "Tls" ? 64u << 20 : 256u << 20;
  std::string large(kLarge, 'L');
  std::string got_large(kLarge, '\0');
  size_t arrived = 0;
  Outcome sent, received;
  pair(1).Recv(
      1, Whole(got_large), [&](size_t bytes) { arrived = bytes; }, received.Note());
  pair(0).Send(1, Whole(large), sent.Note());
  ASSERT_TRUE(RunUntil([&] { return arrived > 0; }));
  std::string small = "four";
  std::string got_small(4, '\0');
  int round_trips = 0;
  while (received.runs == 0 && round_trips < 3) {
    Outcome small_sent, small_received;
    const size_t before = arrived;
    pair(1).Recv(2, Whole(got_small), nullptr, small_received.Note());
    pair(0).Send(2, Whole(small), small_sent.Note());
    ASSERT_TRUE(RunUntil([&] { return small_received.runs == 1; }));
    EXPECT_TRUE(small_received.ok());
    EXPECT_LT(arrived - before, 32u << 20) << "it waited behind the large one";
    ++round_trips;
  }
  EXPECT_EQ(round_trips, 3) << "4 bytes were stuck behind the large operation";
  ASSERT_TRUE(RunUntil([&] { return received.runs == 1 && sent.runs == 1; }));
  EXPECT_EQ(got_large, large);
}

// Each side sleeps in its own thread and is woken by data or doorbell.
TEST_P(PairTest, TwoThreadsExchangeAndSleepBetween) {
  constexpr int kRounds = 300;
  std::atomic<int> finished{0};
  auto run = [&](int side) {
    std::mt19937_64 random(side + 1);
    for (int round = 0; round < kRounds; ++round) {
      const size_t size = round % 10 == 0 ? 700000 : round * 7;
      std::string mine = Pattern(round * 2 + side, size);
      std::string got(size, '\0');
      const std::string expected = Pattern(round * 2 + 1 - side, size);
      Outcome sent, received;
      pair(side).Send(round % 3, Whole(mine), sent.Note());
      pair(side).Recv(round % 3, Whole(got), nullptr, received.Note());
      while (sent.runs == 0 || received.runs == 0) {
        // Poll last: what came before the look is handled, what comes after it wakes.
        if (!pair(side).Poll() && !ends_.loop[side]->RunOnce(Duration::zero()) && !(sent.runs && received.runs)) {
          ends_.loop[side]->RunOnce(Duration(-1));
        }
      }
      ASSERT_TRUE(sent.ok() && received.ok());
      ASSERT_EQ(got, expected);
    }
    finished.fetch_add(1, std::memory_order_relaxed);
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  EXPECT_EQ(finished.load(), 2);
}

}  // namespace
}  // namespace hvd::transport
