// SPDX-License-Identifier: Apache-2.0
// What every Pair must do, run over all of them: tcp by IPv4 and IPv6, tcp under TLS, rings in memory.
#include "hvd/transport/pair.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "hvd/loop/loop.h"
#include "hvd/net/deadline.h"
#include "hvd/transport/frame.h"
#include "hvd/transport/shm/ring.h"
#include "hvd/transport/shm/ring_pair.h"
#include "hvd/transport/tcp/factory.h"

namespace hvd::transport {
namespace {

constexpr Duration kPatience = std::chrono::seconds(120);

// Two ranks in one process: what both ends need, and the ends.
struct Ends {
  std::vector<std::byte*> memory;
  std::unique_ptr<loop::Loop> loop[2];
  std::unique_ptr<Pair> pair[2];

  Ends() = default;
  ~Ends() {
    Clear();
    for (std::byte* block : memory) std::free(block);
  }
  void Clear() {
    for (auto& end : pair) end.reset();
    for (auto& reactor : loop) reactor.reset();
  }
  void Turn(int side, Duration wait = Duration::zero()) {
    loop[side]->Turn(wait);
    if (pair[side]) pair[side]->Poll();
  }
};

using Maker = void (*)(Ends*);

void MakeTcp(Ends* ends, const char* host, bool encrypt) {
  const auto address = *net::Resolve({host, 0});
  std::vector<tcp::Listener> listeners;
  for (int i = 0; i < 2; ++i) listeners.push_back(std::move(*tcp::Listener::Create(address.at(0))));
  const auto token = net::Token::Generate();
  auto connect = [&](int rank) {
    tcp::ConnectOptions options{.rank = rank,
                                .size = 2,
                                .addresses = {listeners[0].address(), listeners[1].address()},
                                .token = &*token,
                                .generation = 3,
                                .loop = ends->loop[rank].get(),
                                .listener = &listeners[rank],
                                .deadline = net::DeadlineAfter(std::chrono::seconds(20)),
                                .socket = {.congestion = "cubic"},
                                .encrypt = encrypt};
    auto pairs = tcp::ConnectAll(options);
    ASSERT_TRUE(pairs) << pairs.error().message;
    ends->pair[rank] = std::move(pairs->at(1 - rank));
  };
  std::thread other([&] { connect(1); });
  connect(0);
  other.join();
}

void MakeV4(Ends* ends) { MakeTcp(ends, "127.0.0.1", false); }
void MakeV6(Ends* ends) { MakeTcp(ends, "::1", false); }
void MakeTls(Ends* ends) { MakeTcp(ends, "127.0.0.1", true); }

void MakeRing(Ends* ends) {
  constexpr size_t kBytes = shm::RingBytes(64 << 10);
  std::span<std::byte> rings[2];
  for (auto& ring : rings) {
    auto* block = static_cast<std::byte*>(std::aligned_alloc(128, kBytes));
    std::memset(block, 0, kBytes);
    ends->memory.push_back(block);
    ring = {block, kBytes};
  }
  for (int i = 0; i < 2; ++i) {
    loop::Loop* peer_loop = ends->loop[1 - i].get();
    auto pair = shm::CreateRingPair(
        1 - i, rings[i], rings[1 - i], [peer_loop] { peer_loop->Wake(); }, ends->loop[i].get());
    ASSERT_TRUE(pair) << pair.error().message;
    ends->pair[i] = std::move(*pair);
  }
}

struct Kind {
  const char* name;
  Maker make;
};

class PairTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    for (auto& loop : ends_.loop) loop = std::move(*loop::CreateEpollLoop());
    GetParam().make(&ends_);
    if (HasFatalFailure()) return;
    for (int i = 0; i < 2; ++i) {
      ends_.pair[i]->OnClosed([this, i](const Error& error) { closed_[i].push_back(error); });
      ends_.pair[i]->OnMessage([this, i](std::span<const std::byte> m) {
        messages_[i].emplace_back(reinterpret_cast<const char*>(m.data()), m.size());
      });
    }
  }

  void TearDownAndSetUp() {
    ends_.Clear();
    SetUp();
  }

  template <typename Predicate>
  [[nodiscard]] bool RunUntil(Predicate predicate) {
    const Time deadline = net::DeadlineAfter(kPatience);
    while (!predicate()) {
      for (int side = 0; side < 2; ++side) ends_.Turn(side);
      if (net::Now() > deadline) return false;
    }
    return true;
  }
  // Until nothing moves for many turns.
  void Settle() {
    for (int i = 0; i < 300; ++i) {
      for (int side = 0; side < 2; ++side) ends_.Turn(side);
    }
  }

  Pair& pair(int side) { return *ends_.pair[side]; }

  Ends ends_;
  std::vector<Error> closed_[2];
  std::vector<std::string> messages_[2];
};

std::span<const std::byte> AsBytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::vector<iovec> Whole(std::string& buffer) { return {{buffer.data(), buffer.size()}}; }

std::string Pattern(uint64_t seed, size_t bytes) {
  std::string data(bytes, '\0');
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(data.data() + i, &word, std::min<size_t>(8, bytes - i));
  }
  return data;
}

struct Outcome {
  int runs = 0;
  Status status;
  Completion Note() {
    return [this](Status s) {
      ++runs;
      status = std::move(s);
    };
  }
  bool ok() const { return runs == 1 && status.has_value(); }
  Code code() const { return runs == 1 && !status ? status.error().code : Code::kOk; }
};

TEST_P(PairTest, KnowsItsPeer) {
  EXPECT_EQ(pair(0).peer(), 1);
  EXPECT_EQ(pair(1).peer(), 0);
}

TEST_P(PairTest, MessagesArriveInOrderWhateverTheirSize) {
  std::vector<std::string> sent;
  for (const size_t size : {0, 1, 23, 24, 25, 4000, 8191, 8192, 8193, 70000, 1 << 20, 3, 0, 1 << 20}) {
    sent.push_back(Pattern(size, size));
  }
  for (const std::string& message : sent) {
    pair(0).SendMessage(AsBytes(message));
    pair(1).SendMessage(AsBytes(message));
  }
  EXPECT_TRUE(messages_[0].empty() && messages_[1].empty());
  ASSERT_TRUE(RunUntil([&] { return messages_[0].size() == sent.size() && messages_[1].size() == sent.size(); }));
  EXPECT_EQ(messages_[0], sent);
  EXPECT_EQ(messages_[1], sent);
}

TEST_P(PairTest, AMessageThatIsTooLargeEndsThePairWithAClearError) {
  const std::string huge(kMaxMessageBytes + 1, 'x');
  pair(0).SendMessage(AsBytes(huge));
  ASSERT_TRUE(RunUntil([&] { return !closed_[0].empty(); }));
  EXPECT_EQ(closed_[0][0].code, Code::kInvalidArgument);
}

TEST_P(PairTest, DataMeetsItsReceiveInEitherOrderOfPosting) {
  for (const size_t size : {size_t{0}, size_t{1}, kEagerBytes, kEagerBytes + 1, size_t{3} << 20}) {
    for (const bool receive_first : {true, false}) {
      std::string data = Pattern(size, size);
      std::string got(size, '\0');
      Outcome sent, received;
      auto send = [&] { pair(0).Send(7, Whole(data), sent.Note()); };
      auto receive = [&] { pair(1).Recv(7, Whole(got), nullptr, received.Note()); };
      receive_first ? receive() : send();
      Settle();
      receive_first ? send() : receive();
      EXPECT_EQ(received.runs, 0) << "inside the call";
      ASSERT_TRUE(RunUntil([&] { return sent.runs + received.runs == 2; })) << size;
      EXPECT_TRUE(sent.ok() && received.ok());
      EXPECT_EQ(got, data);
    }
  }
}

TEST_P(PairTest, ASendIsCompletedInATurnNotInTheCall) {
  std::string data = "x";
  Outcome sent;
  pair(0).Send(1, Whole(data), sent.Note());
  EXPECT_EQ(sent.runs, 0);
  ASSERT_TRUE(RunUntil([&] { return sent.runs == 1; }));
}

TEST_P(PairTest, PartialArrivalGrowsAndEndsWithTheWholeBeforeCompletion) {
  for (const size_t size : {size_t{100}, size_t{60000}, size_t{5} << 20}) {
    std::string data = Pattern(size, size);
    std::string got(size, '\0');
    size_t last = 0;
    Outcome sent, received;
    pair(1).Recv(
        1, Whole(got),
        [&](size_t bytes) {
          EXPECT_GT(bytes, last);
          EXPECT_EQ(received.runs, 0);
          EXPECT_EQ(std::string_view(got).substr(last, bytes - last),
                    std::string_view(data).substr(last, bytes - last));
          last = bytes;
        },
        received.Note());
    pair(0).Send(1, Whole(data), sent.Note());
    ASSERT_TRUE(RunUntil([&] { return received.runs == 1; }));
    EXPECT_EQ(last, size);
  }
}

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
    for (size_t turns = random() % 3; turns > 0; --turns) ends_.Turn(static_cast<int>(random() % 2));
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

TEST_P(PairTest, DifferentSizesFailBothSides) {
  struct Case {
    size_t send, receive;
  };
  for (const Case c : {Case{4, 8}, Case{4, 1 << 20}, Case{1 << 20, 4}, Case{1 << 20, 2 << 20}}) {
    for (const bool receive_first : {true, false}) {
      closed_[0].clear();
      closed_[1].clear();
      TearDownAndSetUp();
      std::string data(c.send, 'x');
      std::string got(c.receive, '\0');
      Outcome sent, received;
      if (!receive_first) pair(0).Send(1, Whole(data), sent.Note());
      if (!receive_first) Settle();
      pair(1).Recv(1, Whole(got), nullptr, received.Note());
      if (receive_first) Settle();
      if (receive_first) pair(0).Send(1, Whole(data), sent.Note());
      ASSERT_TRUE(RunUntil([&] { return closed_[0].size() == 1 && closed_[1].size() == 1; }));
      EXPECT_EQ(closed_[0][0].code, Code::kInternal);
      EXPECT_EQ(closed_[1][0].code, Code::kInternal);
      EXPECT_EQ(received.code(), Code::kInternal);
      EXPECT_NE(received.status.error().message.find("sizes differ"), std::string::npos);
    }
  }
}

TEST_P(PairTest, CloseFailsWhatIsPendingHereAndThere) {
  std::string data(1 << 20, 'x');
  std::string got(1 << 20, '\0');
  Outcome sent, received, peer_received, peer_sent, late;
  pair(0).Send(1, Whole(data), sent.Note());
  pair(0).Recv(2, Whole(got), nullptr, received.Note());
  std::string other(10, '\0');
  pair(1).Recv(3, Whole(other), nullptr, peer_received.Note());
  Settle();
  pair(0).Close();
  pair(0).Close();
  pair(0).Send(1, Whole(data), late.Note());
  EXPECT_EQ(sent.runs + received.runs + late.runs, 0) << "inside the call";
  ASSERT_TRUE(
      RunUntil([&] { return sent.runs && received.runs && late.runs && peer_received.runs && !closed_[1].empty(); }));
  EXPECT_EQ(sent.code(), Code::kAborted);
  EXPECT_EQ(received.code(), Code::kAborted);
  EXPECT_EQ(late.code(), Code::kAborted);
  EXPECT_EQ(peer_received.code(), Code::kUnknown);
  pair(1).Send(9, Whole(data), peer_sent.Note());
  ASSERT_TRUE(RunUntil([&] { return peer_sent.runs == 1; }));
  EXPECT_EQ(peer_sent.code(), Code::kUnknown);
  Settle();
  ASSERT_EQ(closed_[1].size(), 1u);
  EXPECT_EQ(closed_[1][0].rank, 0);
  EXPECT_TRUE(closed_[0].empty()) << "our own Close is no news to us";
}

TEST_P(PairTest, WhatWasSentBeforeCloseIsDelivered) {
  std::vector<std::string> sent;
  for (int i = 0; i < 20; ++i) sent.push_back(Pattern(i, i * 1000));
  std::string bulk(8 << 20, 'b');
  std::string sink(8 << 20, '\0');
  Outcome bulk_sent, bulk_received;
  size_t arrived = 0;
  pair(1).Recv(
      1, Whole(sink), [&](size_t bytes) { arrived = bytes; }, bulk_received.Note());
  pair(0).Send(1, Whole(bulk), bulk_sent.Note());
  ASSERT_TRUE(RunUntil([&] { return arrived > 0; }));
  for (const auto& message : sent) pair(0).SendMessage(AsBytes(message));
  // A polled stream takes no more than it has room for once its owner does not poll any more: let messages leave first.
  if (std::string_view(GetParam().name) == "Ring") {
    ASSERT_TRUE(RunUntil([&] { return messages_[1].size() == sent.size(); }));
  }
  pair(0).Close();
  std::fill(bulk.begin(), bulk.end(),
            '!');  // after its completion nobody looks at it; before it, nobody may write to it
  ASSERT_TRUE(RunUntil([&] { return closed_[1].size() == 1; }));
  EXPECT_EQ(messages_[1], sent);
  EXPECT_NE(closed_[1][0].message.find("closed the connection"), std::string::npos) << closed_[1][0].message;
}

TEST_P(PairTest, DestructionWithOperationsPendingIsSafe) {
  std::string data(1 << 20, 'x');
  std::string got(1 << 20, '\0');
  Outcome sent, received, peer_received;
  size_t arrived = 0;
  pair(1).Recv(
      1, Whole(got), [&](size_t bytes) { arrived = bytes; }, peer_received.Note());
  pair(0).Send(1, Whole(data), sent.Note());
  std::string more(100, '\0');
  pair(0).Recv(1, Whole(more), nullptr, received.Note());
  ASSERT_TRUE(RunUntil([&] { return arrived > 0; }));
  ends_.pair[0] = nullptr;
  ASSERT_TRUE(RunUntil([&] { return sent.runs && received.runs && peer_received.runs && !closed_[1].empty(); }));
  EXPECT_EQ(received.code(), Code::kAborted);
}

TEST_P(PairTest, HandlersMayDestroyThePair) {
  std::string byte(1, 'x');
  Outcome sent;
  pair(1).OnMessage([&](std::span<const std::byte>) { ends_.pair[1] = nullptr; });
  pair(0).SendMessage(AsBytes(byte));
  pair(0).SendMessage(AsBytes(byte));
  ASSERT_TRUE(RunUntil([&] { return ends_.pair[1] == nullptr && closed_[0].size() == 1; }));
  pair(0).Send(1, Whole(byte), [&](Status) { ends_.pair[0] = nullptr; });
  ASSERT_TRUE(RunUntil([&] { return ends_.pair[0] == nullptr; }));
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
        if (!pair(side).Poll() && !ends_.loop[side]->Turn(Duration::zero()) && !(sent.runs && received.runs)) {
          ends_.loop[side]->Turn(Duration(-1));
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

INSTANTIATE_TEST_SUITE_P(All, PairTest,
                         ::testing::Values(Kind{"TcpV4", MakeV4}, Kind{"TcpV6", MakeV6}, Kind{"Tls", MakeTls},
                                           Kind{"Ring", MakeRing}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hvd::transport
