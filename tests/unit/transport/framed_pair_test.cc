// SPDX-License-Identifier: Apache-2.0
// A framed pair against a peer that misbehaves: raw bytes on the other end of a socket.
#include "hvd/transport/framed_pair.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <random>
#include <string>

#include "hvd/net/deadline.h"
#include "hvd/transport/frame.h"
#include "hvd/transport/tcp/stream.h"

namespace hvd::transport {
namespace {

class FramedPairTest : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = std::move(*loop::CreateEpollLoop());
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds_), 0);
    pair_ = std::move(*CreateFramedPair(4, tcp::CreateSocketStream(net::Fd(fds_[0])), loop_.get()));
    pair_->OnClosed([this](const Error& error) { closed_.push_back(error); });
    pair_->OnMessage([this](std::span<const std::byte> m) {
      messages_.emplace_back(reinterpret_cast<const char*>(m.data()), m.size());
    });
  }
  void TearDown() override {
    pair_.reset();
    loop_.reset();
    if (fds_[1] >= 0) close(fds_[1]);
  }
  void Raw(const std::string& bytes) {
    ASSERT_EQ(send(fds_[1], bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  static std::string Frame(const FrameHeader& header, const std::string& payload = "") {
    std::array<std::byte, kFrameHeaderBytes> bytes;
    EncodeFrameHeader(header, bytes);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) + payload;
  }
  void HangUp() { close(std::exchange(fds_[1], -1)); }
  bool RunUntilClosed() {
    const Time deadline = net::DeadlineAfter(std::chrono::seconds(60));
    while (closed_.empty() && net::Now() < deadline) loop_->RunOnce(std::chrono::milliseconds(10));
    return !closed_.empty();
  }

  std::unique_ptr<loop::Loop> loop_;
  std::unique_ptr<Pair> pair_;
  int fds_[2];
  std::vector<Error> closed_;
  std::vector<std::string> messages_;
};

TEST_F(FramedPairTest, APeerThatVanishesFailsEverythingAndIsNamed) {
  std::string buffer(100, '\0');
  std::string large(1 << 20, 'x');
  std::vector<Code> codes;
  auto note = [&](const Status& status) {
    ASSERT_FALSE(status);
    codes.push_back(status.error().code);
    EXPECT_EQ(status.error().rank, 4);
  };
  pair_->Recv(1, {{buffer.data(), buffer.size()}}, nullptr, note);
  pair_->Send(2, {{large.data(), large.size()}}, note);
  HangUp();
  ASSERT_TRUE(RunUntilClosed());
  EXPECT_EQ(codes, (std::vector<Code>{Code::kUnknown, Code::kUnknown}));
  for (int i = 0; i < 10; ++i) loop_->RunOnce(Duration::zero());
  EXPECT_EQ(closed_.size(), 1u);
  EXPECT_EQ(closed_[0].rank, 4);
  EXPECT_EQ(loop_->watched(), 0);
}

TEST_F(FramedPairTest, WhatCameBeforeTheEndIsDeliveredFirst) {
  Raw(Frame({FrameType::kMessage, 5, 0, 5}, "hello"));
  HangUp();
  ASSERT_TRUE(RunUntilClosed());
  EXPECT_EQ(messages_, std::vector<std::string>{"hello"});
}

TEST_F(FramedPairTest, AnEndInTheMiddleOfAFrameIsSaid) {
  Raw(Frame({FrameType::kMessage, 5, 0, 5}, "he"));
  HangUp();
  ASSERT_TRUE(RunUntilClosed());
  EXPECT_NE(closed_[0].message.find("middle of a frame"), std::string::npos);
  EXPECT_TRUE(messages_.empty());
}

TEST_F(FramedPairTest, HeadersMayComeInAnyPieces) {
  const std::string bytes = Frame({FrameType::kMessage, 5, 0, 5}, "hello") + Frame({FrameType::kMessage, 0, 0, 0});
  for (const char byte : bytes) {
    Raw(std::string(1, byte));
    loop_->RunOnce(Duration::zero());
  }
  EXPECT_EQ(messages_, (std::vector<std::string>{"hello", ""}));
}

TEST_F(FramedPairTest, NonsenseEndsThePairNotTheProcess) {
  Raw("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n");
  ASSERT_TRUE(RunUntilClosed());
  EXPECT_EQ(closed_[0].code, Code::kInternal);
}

TEST_F(FramedPairTest, WhatOnlyPreparesTravelsWithDataOrInTheNextTurn) {
  std::string large(1 << 20, 'x');
  const auto ignore = [](const Status&) {};
  const auto waiting = [this] {
    std::array<char, 4096> bytes;
    return recv(fds_[1], bytes.data(), bytes.size(), MSG_DONTWAIT);
  };
  const auto head = static_cast<ssize_t>(kFrameHeaderBytes);
  pair_->Recv(1, {{large.data(), large.size()}}, nullptr, ignore);
  pair_->Send(2, {{large.data(), large.size()}}, ignore);
  EXPECT_EQ(waiting(), -1);
  pair_->Send(3, {{large.data(), 10}}, ignore);
  EXPECT_EQ(waiting(), 3 * head + 10);
  pair_->Recv(1, {{large.data(), large.size()}}, nullptr, ignore);
  pair_->Recv(1, {{large.data(), large.size()}}, nullptr, ignore);
  EXPECT_EQ(waiting(), -1);
  loop_->RunOnce(Duration::zero());
  EXPECT_EQ(waiting(), 2 * head);
}

TEST_F(FramedPairTest, DataThatWasNotGrantedIsRefused) {
  Raw(Frame({FrameType::kAnnounce, 0, 1, 1 << 20}) + Frame({FrameType::kData, 100, 1, 1 << 20}));
  ASSERT_TRUE(RunUntilClosed());
  EXPECT_EQ(closed_[0].code, Code::kInternal);
}

TEST_F(FramedPairTest, MoreDataThanAnnouncedNeverLeavesTheBuffer) {
  std::string buffer(100000, '\0');
  Status status;
  pair_->Recv(1, {{buffer.data(), buffer.size()}}, nullptr, [&](Status s) { status = std::move(s); });
  Raw(Frame({FrameType::kAnnounce, 0, 1, 100000}) +
      Frame({FrameType::kData, 99999, 1, 100000}, std::string(99999, 'a')) +
      Frame({FrameType::kData, 2, 1, 100000}, "bb"));
  ASSERT_TRUE(RunUntilClosed());
  EXPECT_EQ(closed_[0].code, Code::kInternal);
  EXPECT_FALSE(status);
}

TEST_F(FramedPairTest, MoreThanTheWindowBeforeAnybodyAsksIsRefused) {
  const uint64_t bytes = 64 << 10;
  const std::string payload(bytes, 'x');
  uint64_t sent = 0;
  for (; closed_.empty() && sent < 2 * kEagerWindow; sent += bytes) {
    Raw(Frame({FrameType::kEager, bytes, 1, bytes}, payload));
    for (int i = 0; i < 3; ++i) loop_->RunOnce(Duration::zero());
  }
  ASSERT_TRUE(RunUntilClosed());
  EXPECT_TRUE(closed_[0].message.ends_with("sends more than its window before anybody asks for it"));
  EXPECT_LE(sent, kEagerWindow + bytes);
}

TEST_F(FramedPairTest, WindowThatWasNeverTakenCannotBeGivenBack) {
  Raw(Frame({FrameType::kCredit, 0, 0, 1}));
  ASSERT_TRUE(RunUntilClosed());
  EXPECT_EQ(closed_[0].code, Code::kInternal);
}

TEST_F(FramedPairTest, RandomBytesAreSurvived) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::string noise;
  for (int i = 0; i < 4000; ++i) noise.push_back(static_cast<char>(random()));
  Raw(noise);
  ASSERT_TRUE(RunUntilClosed());
}

}  // namespace
}  // namespace hvd::transport
