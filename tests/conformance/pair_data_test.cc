// SPDX-License-Identifier: Apache-2.0
// Every Pair: messages and data arrive whole, in order, and when they are said to.
#include <gtest/gtest.h>

#include "tests/conformance/pair_fixture.h"

namespace hvd::transport {
namespace {

INSTANTIATE_TEST_SUITE_P(All, PairTest, EveryKind(), NameOfKind);

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

TEST_P(PairTest, MessagesThatMayWaitTravelTogetherInTheNextTurnOrBeforeOneThatMayNot) {
  Settle();
  const std::vector<std::string> sent{"first", "second", "third", "fourth"};
  const uint64_t before = pair(0).flow().sent.load();
  pair(0).SendMessageSoon(AsBytes(sent[0]));
  pair(0).SendMessageSoon(AsBytes(sent[1]));
  EXPECT_EQ(pair(0).flow().sent.load(), before);
  ASSERT_TRUE(RunUntil([&] { return messages_[1].size() == 2; }));
  pair(0).SendMessageSoon(AsBytes(sent[2]));
  pair(0).SendMessage(AsBytes(sent[3]));
  ASSERT_TRUE(RunUntil([&] { return messages_[1].size() == 4; }));
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

}  // namespace
}  // namespace hvd::transport
