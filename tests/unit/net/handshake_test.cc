// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/handshake.h"

#include <gtest/gtest.h>

#include <thread>

#include "hvd/net/socket.h"
#include "tests/unit/net/test_pair.h"

namespace hvd::net::handshake {
namespace {

const Identity kWho{.generation = 3, .from = 1, .to = 2, .size = 4, .channel = 5};
const Identity kExpected{.generation = 3, .to = 2, .size = 4};

Key RandomKey() {
  const Token token = *Token::Generate();
  return *MakeKey(&token, 3);
}

TEST(Handshake, BothLearnWhoTheOtherIs) {
  const Token token = *Token::Generate();
  for (const Token* with : {&token, static_cast<const Token*>(nullptr)}) {
    const Key key = *MakeKey(with, 3);
    TestPair pair;
    Status connected;
    std::thread other([&] { connected = Connect(pair.a.get(), key, kWho, Soon()); });
    const auto accepted = Accept(pair.b.get(), key, kExpected, Soon());
    other.join();
    ASSERT_TRUE(connected) << connected.error().message;
    ASSERT_TRUE(accepted) << accepted.error().message;
    EXPECT_EQ(accepted->from, 1u);
    EXPECT_EQ(accepted->channel, 5u);
  }
}

TEST(Handshake, HelloSurvivesCoding) {
  const Nonce nonce = *MakeNonce();
  const Identity got = *DecodeHello(EncodeHello(kWho, nonce));
  EXPECT_EQ(got.generation, kWho.generation);
  EXPECT_EQ(got.from, kWho.from);
  EXPECT_EQ(got.to, kWho.to);
  EXPECT_EQ(got.size, kWho.size);
  EXPECT_EQ(got.channel, kWho.channel);
}

TEST(Handshake, WrongKeyFailsOnBothSides) {
  const Key mine = RandomKey();
  const Key other = RandomKey();
  const Connector connector(other, kWho, *MakeNonce());
  Acceptor acceptor(mine, kExpected, *MakeNonce());
  const Reply reply = *acceptor.OnHello(connector.hello());
  EXPECT_EQ(connector.OnReply(reply).error().code, Code::kPermissionDenied);
  EXPECT_EQ(acceptor.OnConfirm(Confirm{}).error().code, Code::kPermissionDenied);
}

TEST(Handshake, AnyFlippedBitFails) {
  const Key key = RandomKey();
  const Connector connector(key, kWho, *MakeNonce());
  for (size_t bit = 0; bit < kHelloBytes * 8; ++bit) {
    Hello hello = connector.hello();
    hello[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    Acceptor acceptor(key, kExpected, *MakeNonce());
    const auto reply = acceptor.OnHello(hello);
    if (reply) {
      EXPECT_FALSE(connector.OnReply(*reply)) << "bit " << bit;
    }
  }
  Acceptor acceptor(key, kExpected, *MakeNonce());
  const Reply reply = *acceptor.OnHello(connector.hello());
  const Confirm confirm = *connector.OnReply(reply);
  for (size_t bit = 0; bit < kReplyBytes * 8; ++bit) {
    Reply bad = reply;
    bad[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(connector.OnReply(bad)) << "bit " << bit;
  }
  for (size_t bit = 0; bit < kConfirmBytes * 8; ++bit) {
    Confirm bad = confirm;
    bad[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(acceptor.OnConfirm(bad)) << "bit " << bit;
  }
  EXPECT_TRUE(acceptor.OnConfirm(confirm));
}

TEST(Handshake, ARecordedExchangeCannotBeReplayed) {
  const Key key = RandomKey();
  const Connector connector(key, kWho, *MakeNonce());
  Acceptor first(key, kExpected, *MakeNonce());
  const Reply reply = *first.OnHello(connector.hello());
  const Confirm confirm = *connector.OnReply(reply);
  ASSERT_TRUE(first.OnConfirm(confirm));
  // To the acceptor, by somebody who recorded the connector:
  Acceptor second(key, kExpected, *MakeNonce());
  ASSERT_TRUE(second.OnHello(connector.hello()));
  EXPECT_FALSE(second.OnConfirm(confirm));
  // To a connector, by somebody who recorded the acceptor:
  const Connector again(key, kWho, *MakeNonce());
  EXPECT_FALSE(again.OnReply(reply));
}

TEST(Handshake, TheAcceptorsOwnProofIsNoConfirm) {
  const Key key = RandomKey();
  const Connector connector(key, kWho, *MakeNonce());
  Acceptor acceptor(key, kExpected, *MakeNonce());
  const Reply reply = *acceptor.OnHello(connector.hello());
  EXPECT_FALSE(acceptor.OnConfirm(Bytes(reply).subspan(kNonceBytes)));
}

TEST(Handshake, ConfirmNeedsAHello) {
  const Acceptor acceptor(Key{}, kExpected, *MakeNonce());
  EXPECT_FALSE(acceptor.OnConfirm(Confirm{}));
}

TEST(Handshake, MixUpsAreNamed) {
  Acceptor acceptor(Key{}, kExpected, *MakeNonce());
  Identity who = kWho;
  who.generation = 2;
  EXPECT_NE(acceptor.OnHello(EncodeHello(who, {})).error().message.find("generation 2"), std::string::npos);
  who = kWho;
  who.to = 3;
  EXPECT_NE(acceptor.OnHello(EncodeHello(who, {})).error().message.find("looks for rank 3"), std::string::npos);
  who = kWho;
  who.from = 4;
  EXPECT_FALSE(acceptor.OnHello(EncodeHello(who, {})));
  EXPECT_FALSE(acceptor.OnHello(AsBytes("PUT / HTTP/1.1\r\n")));
}

TEST(Handshake, ASilentPeerEndsAtTheDeadline) {
  TestPair pair;
  const auto accepted = Accept(pair.b.get(), Key{}, kExpected, DeadlineAfter(std::chrono::milliseconds(5)));
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code, Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace hvd::net::handshake
