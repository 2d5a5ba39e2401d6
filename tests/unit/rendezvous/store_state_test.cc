// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/store_state.h"

#include <gtest/gtest.h>

#include <map>

namespace hvd::rendezvous::tcp {
namespace {

using std::chrono::seconds;

class StoreStateTest : public ::testing::Test {
 protected:
  void Set(ClientId client, const std::string& key, const std::string& value = "v") {
    state_.Handle(client, {.op = Op::kSet, .key = key, .value = value}, now_);
  }
  void Wait(ClientId client, std::vector<std::string> keys, uint64_t timeout_us = 1000000) {
    state_.Handle(client, {.op = Op::kWait, .timeout_us = timeout_us, .keys = std::move(keys)}, now_);
  }
  Time now_{seconds(100)};
  std::map<ClientId, std::vector<Response>> answers_;
  StoreState state_{[this](ClientId client, const Response& response) { answers_[client].push_back(response); }};
};

TEST_F(StoreStateTest, AWaitIsAnsweredOnceWhenItsLastKeyComes) {
  Wait(1, {"a", "b", "c"});
  Set(2, "b");
  Set(2, "c");
  EXPECT_TRUE(answers_[1].empty());
  Set(2, "a", "first");
  ASSERT_EQ(answers_[1].size(), 1u);
  EXPECT_EQ(answers_[1][0].values, (std::vector<std::string>{"first", "v", "v"}));
  Set(2, "a");
  state_.Expire(now_ + seconds(10));
  EXPECT_EQ(answers_[1].size(), 1u);
  EXPECT_FALSE(state_.NextDeadline());
}

TEST_F(StoreStateTest, AKeyDeletedWhileAnotherIsMissingMustComeAgain) {
  Set(2, "a");
  Wait(1, {"a", "b"});
  state_.Handle(2, {.op = Op::kDelete, .key = "a"}, now_);
  Set(2, "b");
  EXPECT_TRUE(answers_[1].empty());
  Set(2, "a");
  EXPECT_EQ(answers_[1].size(), 1u);
}

TEST_F(StoreStateTest, DeadlinesFireInOrder) {
  Wait(1, {"x"}, 2000000);
  Wait(2, {"x"}, 1000000);
  EXPECT_EQ(*state_.NextDeadline(), now_ + seconds(1));
  state_.Expire(now_ + seconds(1));
  EXPECT_EQ(answers_[2].size(), 1u);
  EXPECT_EQ(answers_[2][0].code, Code::kDeadlineExceeded);
  EXPECT_TRUE(answers_[1].empty());
  Set(3, "x");
  EXPECT_EQ(answers_[1][0].code, Code::kOk);
  EXPECT_EQ(answers_[2].size(), 1u);
}

TEST_F(StoreStateTest, AForgottenClientIsNotAnswered) {
  Wait(1, {"x"});
  state_.Forget(1);
  state_.Forget(1);
  Set(2, "x");
  state_.Expire(now_ + seconds(10));
  EXPECT_TRUE(answers_[1].empty());
}

TEST_F(StoreStateTest, TheLongestTimeOutDoesNotOverflow) {
  Wait(1, {"x"}, ~uint64_t{0});
  EXPECT_GT(*state_.NextDeadline(), now_ + std::chrono::hours(24));
}

TEST_F(StoreStateTest, ValuesTooLargeForOneAnswerAreAnError) {
  Set(1, "big", std::string(kMaxValueBytes, 'x'));
  Wait(2, std::vector<std::string>(64, "big"));
  EXPECT_EQ(answers_[2][0].code, Code::kResourceExhausted);
}

TEST_F(StoreStateTest, AnAddWakesWaiters) {
  Wait(1, {"n"});
  state_.Handle(2, {.op = Op::kAdd, .key = "n", .delta = 4}, now_);
  EXPECT_EQ(answers_[1][0].values.front(), "4");
  EXPECT_EQ(answers_[2][0].number, 4);
}

}  // namespace
}  // namespace hvd::rendezvous::tcp
