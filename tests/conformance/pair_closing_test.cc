// SPDX-License-Identifier: Apache-2.0
// Every Pair: how it ends, by request, by error, and in the middle of everything.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/conformance/pair_fixture.h"

namespace hvd::transport {
namespace {

INSTANTIATE_TEST_SUITE_P(All, PairTest, EveryKind(), NameOfKind);

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

TEST_P(PairTest, AClosedOneKnowsWhetherItHasSaidAll) {
  const std::string message = Pattern(1, 1 << 20);
  for (int i = 0; i < 16; ++i) pair(0).SendMessage(AsBytes(message));
  EXPECT_FALSE(pair(0).IsSayingMore()) << "open";
  pair(0).Close();
  EXPECT_TRUE(pair(0).IsSayingMore());
  ASSERT_TRUE(RunUntil([&] { return !closed_[1].empty(); }));
  EXPECT_FALSE(pair(0).IsSayingMore());
  EXPECT_EQ(messages_[1].size(), 16u);
  EXPECT_FALSE(pair(1).IsSayingMore());
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

TEST_P(PairTest, WhatCameBeforeThePeerClosedCanStillBeReceived) {
  std::string small = Pattern(1, 1000), other = Pattern(2, 10), large(1 << 20, 'x');
  Outcome small_sent, other_sent, large_sent;
  pair(0).Send(1, Whole(small), small_sent.Note());
  pair(0).Send(1, Whole(other), other_sent.Note());
  pair(0).Send(2, Whole(large), large_sent.Note());
  ASSERT_TRUE(RunUntil([&] { return small_sent.runs && other_sent.runs; }));
  pair(0).Close();
  ASSERT_TRUE(RunUntil([&] { return closed_[1].size() == 1; }));
  std::string first(1000, ' '), second(10, ' '), third(10, ' '), bulk(1 << 20, ' ');
  Outcome got_first, got_second, got_third, got_bulk;
  size_t partial = 0;
  pair(1).Recv(
      1, Whole(first), [&](size_t bytes) { partial = bytes; }, got_first.Note());
  pair(1).Recv(1, Whole(second), nullptr, got_second.Note());
  pair(1).Recv(1, Whole(third), nullptr, got_third.Note());
  pair(1).Recv(2, Whole(bulk), nullptr, got_bulk.Note());
  ASSERT_TRUE(RunUntil([&] { return got_first.runs && got_second.runs && got_third.runs && got_bulk.runs; }));
  EXPECT_TRUE(got_first.status.has_value());
  EXPECT_TRUE(got_second.status.has_value());
  EXPECT_EQ(partial, 1000u);
  EXPECT_EQ(first, small);
  EXPECT_EQ(second, other);
  EXPECT_EQ(got_third.code(), Code::kUnknown) << "never sent";
  EXPECT_EQ(got_bulk.code(), Code::kUnknown) << "announced only";
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

}  // namespace
}  // namespace hvd::transport
