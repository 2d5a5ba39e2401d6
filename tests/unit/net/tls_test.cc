// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/tls.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <thread>
#include <vector>

#include "hvd/net/socket.h"
#include "tests/unit/net/test_pair.h"

namespace hvd::net {
namespace {

struct Outcome {
  Status client, server;
  std::unique_ptr<TlsStream> client_stream, server_stream;
};

struct Who {
  Token token;
  const char* role = "store";
  uint64_t generation = 0;
};

Outcome Shake(const Who& client, const Who& server) {
  TestPair pair;
  Outcome outcome;
  outcome.client_stream = *TlsStream::Create(
      *TlsContext::Create(TlsSide::kClient, client.token, client.role, client.generation), std::move(pair.a));
  outcome.server_stream = *TlsStream::Create(
      *TlsContext::Create(TlsSide::kServer, server.token, server.role, server.generation), std::move(pair.b));
  std::thread other([&] {
    outcome.server = Handshake(*outcome.server_stream, Soon());
    // What a server does with a client that fails.
    if (!outcome.server) outcome.server_stream.reset();
  });
  outcome.client = Handshake(*outcome.client_stream, Soon());
  other.join();
  return outcome;
}

TEST(Tls, CarriesBytesBothWays) {
  const Token token = *Token::Generate();
  Outcome both = Shake({token}, {token});
  ASSERT_TRUE(both.client) << both.client.error().message;
  ASSERT_TRUE(both.server) << both.server.error().message;
  std::vector<uint8_t> sent(3 << 20);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<uint8_t>(i * 7);
  std::vector<uint8_t> there(sent.size()), back(sent.size());
  std::thread echo([&] {
    EXPECT_TRUE(ReadFull(*both.server_stream, there, Soon()));
    EXPECT_TRUE(WriteFull(*both.server_stream, there, Soon()));
  });
  EXPECT_TRUE(WriteFull(*both.client_stream, sent, Soon()));
  EXPECT_TRUE(ReadFull(*both.client_stream, back, Soon()));
  echo.join();
  EXPECT_EQ(back, sent);
}

TEST(Tls, BytesOnTheWireAreNotTheText) {
  const Token token = *Token::Generate();
  Outcome both = Shake({token}, {token});
  ASSERT_TRUE(both.client && both.server);
  const std::string text = "a very recognisable text";
  ASSERT_TRUE(WriteFull(*both.client_stream, AsBytes(text), Soon()));
  std::string wire(1024, '\0');
  const ssize_t count = recv(both.server_stream->fd(), wire.data(), wire.size(), MSG_PEEK);
  ASSERT_GT(count, 0);
  EXPECT_EQ(wire.find(text), std::string::npos);
}

TEST(Tls, AnotherTokenRoleOrGenerationIsDenied) {
  const Token token = *Token::Generate();
  const Who server{token, "store", 5};
  const Who strangers[] = {{*Token::Generate(), "store", 5}, {token, "data", 5}, {token, "store", 4}};
  for (const Who& stranger : strangers) {
    const Outcome both = Shake(stranger, server);
    ASSERT_FALSE(both.client);
    ASSERT_FALSE(both.server);
    EXPECT_EQ(both.client.error().code, Code::kPermissionDenied) << both.client.error().message;
    EXPECT_EQ(both.server.error().code, Code::kPermissionDenied) << both.server.error().message;
    EXPECT_NE(both.client.error().message.find("token"), std::string::npos);
  }
}

TEST(Tls, AClientWithoutAKeyIsDenied) {
  const Token token = *Token::Generate();
  TestPair pair;
  auto server = *TlsStream::Create(*TlsContext::Create(TlsSide::kServer, token, "store", 0), std::move(pair.b));
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* plain = SSL_new(context);
  SSL_set_fd(plain, pair.a.get());
  std::thread other([&] {
    SSL_connect(plain);
    // Never completes: the socket is non-blocking, so one call has sent the hello.
  });
  other.join();
  const auto shaken = Handshake(*server, Soon());
  EXPECT_FALSE(shaken);
  SSL_free(plain);
  SSL_CTX_free(context);
}

TEST(Tls, GarbageIsAnErrorOnBothSides) {
  const Token token = *Token::Generate();
  for (const TlsSide side : {TlsSide::kServer, TlsSide::kClient}) {
    TestPair pair;
    auto stream = *TlsStream::Create(*TlsContext::Create(side, token, "store", 0), std::move(pair.b));
    ASSERT_TRUE(WriteFull(pair.a.get(), AsBytes("PUT /scope/key HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde"), Soon()));
    const auto shaken = Handshake(*stream, Soon());
    ASSERT_FALSE(shaken);
    EXPECT_EQ(shaken.error().code, Code::kFailedPrecondition) << shaken.error().message;
  }
}

TEST(Tls, ASilentPeerEndsAtTheDeadline) {
  TestPair pair;
  auto stream =
      *TlsStream::Create(*TlsContext::Create(TlsSide::kServer, *Token::Generate(), "s", 0), std::move(pair.b));
  const auto shaken = Handshake(*stream, DeadlineAfter(std::chrono::milliseconds(5)));
  ASSERT_FALSE(shaken);
  EXPECT_EQ(shaken.error().code, Code::kDeadlineExceeded);
}

TEST(Tls, AnEndDuringOrAfterTheHandshakeIsSeen) {
  const Token token = *Token::Generate();
  {
    TestPair pair;
    auto stream = *TlsStream::Create(*TlsContext::Create(TlsSide::kClient, token, "s", 0), std::move(pair.b));
    pair.a.Reset();
    EXPECT_EQ(Handshake(*stream, Soon()).error().code, Code::kUnknown);
  }
  Outcome both = Shake({token}, {token});
  ASSERT_TRUE(both.client && both.server);
  both.client_stream.reset();
  uint8_t byte;
  EXPECT_TRUE(both.server_stream->TryRead({&byte, 1})->end);
}

TEST(Tls, NonBlockingCallsSayWhatTheyWaitFor) {
  const Token token = *Token::Generate();
  Outcome both = Shake({token}, {token});
  ASSERT_TRUE(both.client && both.server);
  uint8_t byte;
  EXPECT_EQ(both.server_stream->TryRead({&byte, 1})->want, Want::kRead);
  const std::vector<uint8_t> data(64 << 10);
  Transfer moved;
  size_t total = 0;
  for (int i = 0; i < 10000 && moved.want == Want::kNothing; ++i) {
    moved = *both.client_stream->TryWrite(data);
    total += moved.bytes;
  }
  EXPECT_EQ(moved.want, Want::kWrite);
  std::vector<uint8_t> got(total);
  // The record that did not fit is completed by a later call, which the reader must not wait for.
  std::thread finish([&] { EXPECT_TRUE(WriteFull(*both.client_stream, data, Soon())); });
  EXPECT_TRUE(ReadFull(*both.server_stream, got, Soon()));
  got.resize(data.size());
  EXPECT_TRUE(ReadFull(*both.server_stream, got, Soon()));
  finish.join();
}

}  // namespace
}  // namespace hvd::net
