// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/builtin/message_announcer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::comm::builtin {
namespace {

using Outcome = Announcer::Outcome;

class MessageAnnouncerTest : public ::testing::Test {
 protected:
  static MessageAnnouncerOptions Options(int members) {
    MessageAnnouncerOptions options;
    for (int m = 0; m < members; ++m) options.order.members.push_back(m);
    options.order.host_sizes.assign(members, 1);
    options.choices = algorithms::Table().For(OpKind::kAllreduce, algorithms::Scope::kNetwork, members);
    options.post = [](std::span<const int>, const wire::MarkMessage&) {};
    return options;
  }

  static Work SumOf(float* value) {
    Work work;
    work.op = OpKind::kAllreduce;
    work.dtype = DType::kFloat32;
    work.payload.Add({reinterpret_cast<std::byte*>(value), reinterpret_cast<std::byte*>(value), sizeof *value});
    return work;
  }

  bool Receive(uint64_t epoch, uint64_t position, int member = 1) {
    return mail_.Receive(member, {0, epoch, position, {{5, 0, std::as_bytes(std::span(&theirs_, 1))}}}).has_value();
  }
  void Decide(uint64_t position) {
    ASSERT_EQ(mail_.Publish(0, position, 5, 0, work_), Outcome::kPublished);
    mail_.Release(position);
  }

  float value_ = 1;
  float theirs_ = 2;
  Work work_ = SumOf(&value_);
  MessageAnnouncer mail_{Options(2)};
};

TEST_F(MessageAnnouncerTest, IsForSmallOperations) {
  std::vector<std::byte> data(64 << 10);
  Work work;
  work.payload.Add({data.data(), data.data(), data.size()});
  EXPECT_TRUE(mail_.Takes(work));
  EXPECT_FALSE(MessageAnnouncer(Options(3)).Takes(work)) << "that would be 128 KiB sent";
  work.payload.Clear();
  work.payload.Add({data.data(), data.data(), data.size() / 2});
  EXPECT_TRUE(MessageAnnouncer(Options(3)).Takes(work));
  EXPECT_TRUE(MessageAnnouncer::Suits(Options(8)));
  EXPECT_TRUE(MessageAnnouncer::Suits(Options(1024)));
  EXPECT_FALSE(MessageAnnouncer::Suits(Options(1025)));
}

TEST_F(MessageAnnouncerTest, WhatIsHandedOnTogetherFitsIntoAMessage) {
  // Member 0 of 16 hands on 8 marks.
  MessageAnnouncerOptions options = Options(16);
  options.choices = {{algorithms::Algorithm::kOneStep, {0, 1 << 20}, {}, false}};
  std::vector<std::byte> data((8 << 10) + 1);
  Work work;
  work.payload.Add({data.data(), data.data(), 8 << 10});
  EXPECT_TRUE(MessageAnnouncer(options).Takes(work));
  work.payload.Clear();
  work.payload.Add({data.data(), data.data(), data.size()});
  EXPECT_FALSE(MessageAnnouncer(options).Takes(work));
}

TEST_F(MessageAnnouncerTest, SumsWhatCameEarlyAndKeepsItsOwnData) {
  EXPECT_TRUE(Receive(0, 0));
  EXPECT_EQ(mail_.Missing(0, 0), 0) << "its own mark";
  EXPECT_EQ(mail_.Publish(0, 0, 5, 0, work_), Outcome::kPublished);
  EXPECT_EQ(mail_.Missing(0, 0), -1);
  EXPECT_TRUE(mail_.Agreed(0));
  value_ = 100;  // the caller's memory is the result's
  EXPECT_EQ(mail_.Begin(0, &work_), nullptr);
  EXPECT_EQ(value_, 3);
}

TEST_F(MessageAnnouncerTest, PublishesSoManyPositionsAheadAndNoMore) {
  for (uint64_t p = 0; p < MessageAnnouncer::kSlots; ++p)
    EXPECT_EQ(mail_.Publish(0, p, 5, 0, work_), Outcome::kPublished);
  EXPECT_EQ(mail_.Publish(0, MessageAnnouncer::kSlots, 5, 0, work_), Outcome::kBusy);
  mail_.Release(1);
  EXPECT_EQ(mail_.Publish(0, MessageAnnouncer::kSlots, 5, 0, work_), Outcome::kBusy) << "the first is still in use";
  mail_.Release(0);
  EXPECT_EQ(mail_.Publish(0, MessageAnnouncer::kSlots, 5, 0, work_), Outcome::kPublished);
}

TEST_F(MessageAnnouncerTest, RefusesMarksThatComeTwiceOrLeaveOneOut) {
  EXPECT_TRUE(Receive(0, 0));
  EXPECT_FALSE(Receive(0, 0));
  EXPECT_FALSE(Receive(0, 2));
  EXPECT_TRUE(Receive(0, 1));
  const Status twice = mail_.Receive(1, {0, 0, 1, {{5, 0, {}}}});
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, ::testing::HasSubstr("out of turn"));
}

TEST_F(MessageAnnouncerTest, RefusesMarksThatAreFurtherAheadThanItsOwnAllow) {
  for (uint64_t p = 0; p < 2 * MessageAnnouncer::kSlots; ++p) EXPECT_TRUE(Receive(0, p));
  EXPECT_FALSE(Receive(0, 2 * MessageAnnouncer::kSlots));
  Decide(0);
  EXPECT_TRUE(Receive(0, 2 * MessageAnnouncer::kSlots));
}

// Member 4 of 11 hears of 3, of 2 and 1, of 0 and 10 to 8, and of 7 to 5; and tells 5, 6, 8 and 1.
TEST_F(MessageAnnouncerTest, HandsOnWhatIsComplete) {
  std::vector<std::pair<int, size_t>> sent;
  MessageAnnouncerOptions options = Options(11);
  options.me = 4;
  options.post = [&](std::span<const int> members, const wire::MarkMessage& message) {
    for (const int member : members) sent.emplace_back(member, message.marks.size());
  };
  MessageAnnouncer messages(std::move(options));
  const auto receive = [&](int sender, size_t count) {
    const std::vector<wire::Mark> marks(count, {5, 0, std::as_bytes(std::span(&theirs_, 1))});
    return messages.Receive(sender, {0, 0, 0, marks}).has_value();
  };
  using Sent = std::vector<std::pair<int, size_t>>;
  EXPECT_TRUE(receive(2, 2)) << "before 3's";
  ASSERT_EQ(messages.Publish(0, 0, 5, 0, work_), Outcome::kPublished);
  EXPECT_EQ(sent, (Sent{{5, 1}}));
  EXPECT_FALSE(receive(3, 2)) << "one too many";
  EXPECT_FALSE(receive(1, 1)) << "three places before";
  EXPECT_TRUE(receive(3, 1));
  EXPECT_EQ(sent, (Sent{{5, 1}, {6, 2}, {8, 4}, {1, 3}}));
  EXPECT_TRUE(receive(0, 4));
  std::vector<int> missing;
  messages.CollectMissing(0, 0, &missing);
  EXPECT_EQ(missing, (std::vector<int>{5, 6, 7}));
  EXPECT_TRUE(receive(7, 3));
  EXPECT_EQ(messages.Missing(0, 0), -1);
  EXPECT_EQ(sent.size(), 4u);
}

// Member 0 of 16 tells 4 of itself and 15 to 13. It hears from 14 and 13 that the epoch ended at 0 before it hears from
// 15.
TEST_F(MessageAnnouncerTest, LeavesNoneOutOfWhatItHandsOn) {
  std::vector<uint64_t> sent_to_4;
  MessageAnnouncerOptions options = Options(16);
  options.post = [&](std::span<const int> members, const wire::MarkMessage& message) {
    if (std::ranges::count(members, 4) > 0) sent_to_4.push_back(message.position);
  };
  MessageAnnouncer messages(std::move(options));
  const auto receive = [&](int sender, size_t count, uint64_t epoch, uint64_t position) {
    const std::vector<wire::Mark> marks(count, {5, 0, std::as_bytes(std::span(&theirs_, 1))});
    return messages.Receive(sender, {0, epoch, position, marks}).has_value();
  };
  for (uint64_t p = 0; p < 3; ++p) ASSERT_EQ(messages.Publish(0, p, 5, 0, work_), Outcome::kPublished);
  for (uint64_t p = 0; p < 3; ++p) EXPECT_TRUE(receive(14, 2, 0, p));
  EXPECT_TRUE(receive(14, 2, 1, 1));
  for (uint64_t p = 0; p < 3; ++p) EXPECT_TRUE(receive(15, 1, 0, p));
  EXPECT_EQ(sent_to_4, (std::vector<uint64_t>{0})) << "position 1 can go no more, and 2 not without it";
}

TEST_F(MessageAnnouncerTest, KnowsMarksOfAnEpochThatEndedFromThoseOfTheNext) {
  Decide(0);
  Decide(1);
  for (uint64_t p = 0; p < 4; ++p) EXPECT_TRUE(Receive(0, p));
  mail_.Withdraw(2);  // the epoch ended at 1
  EXPECT_EQ(mail_.Missing(1, 2), 0);
  EXPECT_EQ(mail_.Publish(1, 2, 5, 0, work_), Outcome::kPublished);
  EXPECT_EQ(mail_.Missing(1, 2), 1) << "its mark there is of the epoch that ended";
  EXPECT_TRUE(Receive(0, 4)) << "on its way when that member had not heard of the end";
  EXPECT_FALSE(Receive(1, 3)) << "the epoch begins at 2";
  EXPECT_FALSE(Receive(2, 2));
  EXPECT_TRUE(Receive(1, 2));
  EXPECT_EQ(mail_.Missing(1, 2), -1);
  EXPECT_FALSE(Receive(0, 5)) << "back to the old one";
}

TEST_F(MessageAnnouncerTest, TakesMarksOfTheNextEpochBeforeItsOwnHasEnded) {
  EXPECT_TRUE(Receive(0, 0));
  EXPECT_TRUE(Receive(0, 1));
  EXPECT_FALSE(Receive(1, 0)) << "an epoch of no position";
  EXPECT_FALSE(Receive(1, 3)) << "behind the last that it has put";
  EXPECT_TRUE(Receive(1, 1));
  EXPECT_FALSE(Receive(2, 2)) << "two ahead";
  Decide(0);
  mail_.Withdraw(1);
  EXPECT_EQ(mail_.Publish(1, 1, 5, 0, work_), Outcome::kPublished);
  EXPECT_EQ(mail_.Missing(1, 1), -1);
}

}  // namespace
}  // namespace hvd::comm::builtin
