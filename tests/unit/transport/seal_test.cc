// SPDX-License-Identifier: Apache-2.0
// Two framed pairs with a seal, and somebody between them who sees and changes every byte.
#include "hvd/transport/seal.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "hvd/net/deadline.h"
#include "hvd/transport/framed_pair.h"
#include "hvd/transport/tcp/stream.h"

namespace hvd::transport {
namespace {

class SealedPairs : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = std::move(*loop::CreateEpollLoop());
    net::Key session;
    session.bytes.fill(42);
    for (int end = 0; end < 2; ++end) {
      int fds[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
      middle_[end] = fds[1];
      pairs_[end] = std::move(*CreateFramedPair(1 - end, tcp::CreateSocketStream(net::Fd(fds[0])), loop_.get(),
                                                std::move(*Seal::Create(session, end == 0))));
      pairs_[end]->OnMessage([this, end](std::span<const std::byte> m) {
        got_[end].emplace_back(reinterpret_cast<const char*>(m.data()), m.size());
      });
      pairs_[end]->OnClosed([this, end](const Error& error) { closed_[end].push_back(error); });
    }
  }
  void TearDown() override {
    for (auto& pair : pairs_) pair.reset();
    loop_.reset();
    for (const int fd : middle_) close(fd);
  }
  void Send(int end, const std::string& text) { pairs_[end]->SendMessage(std::as_bytes(std::span(text))); }
  // Takes what an end has sent.
  std::string Take(int end) {
    loop_->RunOnce(Duration::zero());
    std::string bytes(4096, '\0');
    const ssize_t count = recv(middle_[end], bytes.data(), bytes.size(), 0);
    bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return bytes;
  }
  void Give(int end, const std::string& bytes) {
    ASSERT_EQ(send(middle_[end], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    for (int i = 0; i < 5; ++i) loop_->RunOnce(Duration::zero());
  }
  bool Refused(int end) const {
    return closed_[end].size() == 1 && closed_[end][0].message.find("changed on its way") != std::string::npos;
  }

  std::unique_ptr<loop::Loop> loop_;
  std::unique_ptr<Pair> pairs_[2];
  int middle_[2];
  std::vector<std::string> got_[2];
  std::vector<Error> closed_[2];
};

TEST_F(SealedPairs, UnchangedMessagesArriveInBothDirections) {
  for (const char* text : {"one", "", "three"}) {
    for (int end = 0; end < 2; ++end) {
      Send(end, text);
      Give(1 - end, Take(end));
    }
  }
  EXPECT_EQ(got_[0], (std::vector<std::string>{"one", "", "three"}));
  EXPECT_EQ(got_[1], got_[0]);
}

TEST_F(SealedPairs, EveryBitOfAMessageIsProtected) {
  Send(0, "obey");
  std::string bytes = Take(0);
  ASSERT_EQ(bytes.size(), kFrameHeaderBytes + 4 + kSealBytes);
  bytes[kFrameHeaderBytes + 1] ^= 1;
  Give(1, bytes);
  EXPECT_TRUE(got_[1].empty());
  EXPECT_TRUE(Refused(1));
}

TEST_F(SealedPairs, NoMessageIsTakenTwiceOrInAnotherOrder) {
  Send(0, "first");
  const std::string first = Take(0);
  Send(0, "second");
  const std::string second = Take(0);
  Give(1, first);
  Give(1, first);
  EXPECT_EQ(got_[1], std::vector<std::string>{"first"});
  EXPECT_TRUE(Refused(1));
}

TEST_F(SealedPairs, NoMessageCanBeLeftOutOrSentBack) {
  Send(0, "first");
  const std::string first = Take(0);
  Send(0, "second");
  Give(1, Take(0));
  EXPECT_TRUE(got_[1].empty());
  EXPECT_TRUE(Refused(1));
  Give(0, first);
  EXPECT_TRUE(got_[0].empty());
}

TEST_F(SealedPairs, NobodyElseCanSayThatThePeerGaveUp) {
  std::array<std::byte, kFrameHeaderBytes> header;
  EncodeFrameHeader({.type = FrameType::kFail, .length = 4, .total = 4}, header);
  Give(1, std::string(reinterpret_cast<const char*>(header.data()), header.size()) + "evil");
  EXPECT_TRUE(Refused(1));
}

}  // namespace
}  // namespace hvd::transport
