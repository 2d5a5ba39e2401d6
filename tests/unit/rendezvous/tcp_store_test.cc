// SPDX-License-Identifier: Apache-2.0
// Server and client together: trust, strangers, time-outs, many clients. What every Store promises is in
// tests/conformance/store_test.cc.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <thread>

#include "hvd/net/deadline.h"
#include "hvd/net/handshake.h"
#include "hvd/net/socket.h"
#include "hvd/rendezvous/factory.h"
#include "hvd/rendezvous/tcp/endpoint.h"
#include "hvd/rendezvous/tcp/protocol.h"
#include "hvd/rendezvous/tcp/server.h"

namespace hvd::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Time Soon() { return net::DeadlineAfter(seconds(20)); }

class TcpStore : public ::testing::Test {
 protected:
  void StartWithToken(const std::string& address = "127.0.0.1:0") {
    options_.address = address;
    options_.token = *net::Token::Generate();
    Start();
  }
  void StartWithoutToken() {
    options_.address = "127.0.0.1:0";
    Start();
  }
  void Start() {
    auto server = Serve(options_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    options_.address = server_->address();
  }
  std::unique_ptr<Store> Open() {
    auto store = OpenStore(options_);
    EXPECT_TRUE(store) << store.error().message;
    return std::move(*store);
  }
  // The client may hear of it before the server has written it down.
  bool Refuses(std::string_view why) {
    const auto said = [&] { return server_->LastRefusal().find(why) != std::string::npos; };
    for (int i = 0; i < 2000 && !said(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return said();
  }
  net::Fd Stranger() {
    const auto where = *net::ParseHostPort(options_.address);
    const net::Address address = options_.token ? net::Resolve(where)->front() : *tcp::LocalName(where.port);
    return std::move(*net::Connect(address, Soon()));
  }
  // The server has closed this connection without a useful word.
  static void ExpectDropped(const net::Fd& fd) {
    std::array<uint8_t, 256> buffer;
    size_t total = 0;
    for (;;) {
      ASSERT_TRUE(net::WaitFor(fd.get(), POLLIN, Soon()));
      const ssize_t count = recv(fd.get(), buffer.data(), buffer.size(), 0);
      if (count <= 0) break;
      total += static_cast<size_t>(count);
    }
    EXPECT_LE(total, 64u);  // a TLS alert at most
  }
  Options options_{.timeout = seconds(20)};
  std::unique_ptr<Server> server_;
};

// The public exploit: an unauthenticated HTTP PUT whose value the server unpickles.
const std::string kPickle =
    "\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94"
    ".";

TEST_F(TcpStore, CVE_2024_10190_UnauthenticatedPutToTheRendezvousIsDroppedWithoutEffect) {
  for (const bool token : {true, false}) {
    options_ = Options{.timeout = seconds(20)};
    token ? StartWithToken() : StartWithoutToken();
    const auto store = Open();
    const net::Fd stranger = Stranger();
    const std::string body = "gASVHwAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAJpZJSFlFKULg==";
    ASSERT_TRUE(net::WriteFull(stranger.get(),
                               net::AsBytes(fmt::format("PUT /worker_addresses/localhost:0 HTTP/1.1\r\nHost: x\r\n"
                                                        "Content-Length: {}\r\n\r\n{}",
                                                        body.size(), body)),
                               Soon()));
    ExpectDropped(stranger);
    EXPECT_FALSE(store->Wait({"/worker_addresses/localhost:0"}, Duration(0)));
    EXPECT_TRUE(store->Set("still", "alive"));
  }
}

// The reader's side of the same hole: a value planted in the key-value store before its owner sets it.
TEST_F(TcpStore, CVE_2026_31234_ValuePlantedByAStrangerNeverReachesAReader) {
  StartWithToken();
  const auto reader = Open();
  const std::string set = tcp::Encode(tcp::Request{.op = tcp::Op::kSet, .key = "runfunc/func", .value = kPickle});
  const std::string attempts[] = {"PUT /runfunc/func HTTP/1.0\r\nContent-Length: 38\r\n\r\n" + kPickle,
                                  std::string(tcp::kPreface) + set, set, kPickle};
  for (const std::string& bytes : attempts) {
    const net::Fd stranger = Stranger();
    ASSERT_TRUE(net::WriteFull(stranger.get(), net::AsBytes(bytes), Soon()));
    // Some of these could be the start of a TLS record; the end of the stream settles it.
    shutdown(stranger.get(), SHUT_WR);
    ExpectDropped(stranger);
  }
  // By somebody with a token of another job, too.
  Options other = options_;
  other.token = *net::Token::Generate();
  EXPECT_EQ(OpenStore(other).error().code, Code::kPermissionDenied);
  EXPECT_FALSE(reader->Wait({"runfunc/func"}, Duration(0)));
  // And what a rightful client sets comes back as bytes: nothing in the store ever interprets a value.
  ASSERT_TRUE(Open()->Set("runfunc/func", kPickle));
  EXPECT_EQ(reader->Wait({"runfunc/func"}, seconds(20))->front(), kPickle);
}

TEST_F(TcpStore, WrongTokenIsToldAtOnce) {
  StartWithToken();
  Options wrong = options_;
  wrong.token = *net::Token::Generate();
  wrong.timeout = std::chrono::hours(1);  // The test would not end if the client tried again.
  const auto store = OpenStore(wrong);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::kPermissionDenied);
  EXPECT_NE(store.error().message.find("token"), std::string::npos);
  EXPECT_NE(store.error().message.find(options_.address), std::string::npos);
}

TEST_F(TcpStore, ATokenOnOneSideOnlyIsAHintOnBoth) {
  for (const bool server_has_token : {true, false}) {
    options_ = Options{.timeout = seconds(20)};
    server_has_token ? StartWithToken() : StartWithoutToken();
    Options other = options_;
    other.timeout = milliseconds(300);
    other.token = server_has_token ? std::nullopt : std::optional(*net::Token::Generate());
    const auto store = OpenStore(other);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, Code::kDeadlineExceeded);
    EXPECT_NE(store.error().message.find("HOROVOD_TOKEN_FILE"), std::string::npos) << store.error().message;
    EXPECT_TRUE(Refuses("HOROVOD_TOKEN_FILE")) << server_->LastRefusal();
  }
}

TEST_F(TcpStore, DifferentTokensAreAHintOnTheServerToo) {
  StartWithToken();
  EXPECT_EQ(server_->LastRefusal(), "");
  Options wrong = options_;
  wrong.token = *net::Token::Generate();
  ASSERT_FALSE(OpenStore(wrong));
  EXPECT_TRUE(Refuses("another job token")) << server_->LastRefusal();
}

TEST_F(TcpStore, OldGenerationIsRefused) {
  StartWithToken();
  Options old = options_;
  old.generation = 1;
  EXPECT_EQ(OpenStore(old).error().code, Code::kPermissionDenied);
}

TEST_F(TcpStore, GarbageIsDroppedAndOthersGoOn) {
  for (const bool token : {true, false}) {
    options_ = Options{.timeout = seconds(20)};
    token ? StartWithToken() : StartWithoutToken();
    const auto store = Open();
    std::vector<uint8_t> noise(4096);
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(net::RandomBytes(noise));
      const net::Fd stranger = Stranger();
      (void)net::WriteFull(stranger.get(), noise, Soon());
      shutdown(stranger.get(), SHUT_WR);
      ExpectDropped(stranger);
      EXPECT_TRUE(store->Set("key", std::to_string(i)));
    }
  }
}

TEST_F(TcpStore, AnOpenClientThatBreaksTheProtocolIsDropped) {
  StartWithoutToken();
  const net::Fd rude = Stranger();
  const std::string bytes = std::string(tcp::kPreface) + std::string("\xff\xff\xff\xff", 4);
  ASSERT_TRUE(net::WriteFull(rude.get(), net::AsBytes(bytes), Soon()));
  ExpectDropped(rude);
  EXPECT_TRUE(Open()->Set("a", "b"));
}

TEST_F(TcpStore, SlowAndSilentStrangersDoNotBlockOthers) {
  StartWithToken();
  std::vector<net::Fd> strangers;
  // More than the server keeps: the oldest must give way.
  for (size_t i = 0; i < net::Strangers::kMost + 20; ++i) {
    strangers.push_back(Stranger());
    if (i % 2 == 0) {
      ASSERT_TRUE(net::WriteFull(strangers.back().get(), net::AsBytes(std::string_view("\x16\x03\x01", 3)), Soon()));
    }
  }
  const auto store = Open();
  EXPECT_TRUE(store->Set("key", "value"));
  EXPECT_TRUE(store->Wait({"key"}, seconds(20)));
  ExpectDropped(strangers.front());
  // The last one is dropped for its silence; nothing but time does that.
  ExpectDropped(strangers.back());
}

TEST_F(TcpStore, ManyClientsMeetQuickly) {
  constexpr int kClients = 64;
  for (const bool token : {true, false}) {
    options_ = Options{.timeout = seconds(60)};
    token ? StartWithToken() : StartWithoutToken();
    std::vector<std::string> keys;
    for (int i = 0; i < kClients; ++i) keys.push_back("rank/" + std::to_string(i));
    const Time before = net::Now();
    std::vector<std::thread> threads;
    for (int i = 0; i < kClients; ++i) {
      threads.emplace_back([&, i] {
        const auto store = Open();
        EXPECT_TRUE(store->Set(keys[i], std::string(200, 'x')));
        const auto values = store->Wait(keys, seconds(60));
        ASSERT_TRUE(values) << values.error().message;
        EXPECT_EQ(values->size(), size_t{kClients});
      });
    }
    for (std::thread& thread : threads) thread.join();
    RecordProperty(token ? "tls_ms" : "unix_ms", static_cast<int>(net::InSeconds(net::Now() - before) * 1000));
    EXPECT_TRUE(server_->Drain(seconds(20)));
  }
}

TEST_F(TcpStore, AbsentServerHasItsOwnError) {
  StartWithToken();
  server_.reset();
  options_.timeout = milliseconds(30);
  const Time before = net::Now();
  const auto store = OpenStore(options_);
  ASSERT_FALSE(store);
  EXPECT_GE(net::Now() - before, milliseconds(30));
  EXPECT_EQ(store.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(store.error().message.find("no store answered at " + options_.address), std::string::npos);
  EXPECT_NE(store.error().message.find("is rank 0 running?"), std::string::npos);
}

TEST_F(TcpStore, AStoreOfAnotherUserIsAHint) {
  const uid_t stranger = geteuid() + 1;
  for (const std::string store : {"17", "step"}) {
    const auto theirs = net::Listen(*net::Address::UnixAbstract(tcp::SocketName(stranger, store)));
    ASSERT_TRUE(theirs) << theirs.error().message;
    options_.address = store == "17" ? "127.0.0.1:17" : "local:" + store;
    options_.timeout = milliseconds(300);
    const auto opened = OpenStore(options_);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, Code::kDeadlineExceeded);
    EXPECT_NE(opened.error().message.find(fmt::format("a store of user {} is there", stranger)), std::string::npos)
        << opened.error().message;
    // It knocked, so that the other side may know.
    EXPECT_TRUE(net::WaitFor(theirs->get(), POLLIN, Soon()));
  }
}

TEST_F(TcpStore, ClientsMayComeBeforeTheServer) {
  for (const bool token : {true, false}) {
    options_ = Options{.timeout = seconds(20)};
    token ? StartWithToken() : StartWithoutToken();
    server_.reset();
    std::thread early([&] { EXPECT_TRUE(Open()->Set("a", "b")); });
    server_ = *Serve(options_);
    early.join();
  }
}

TEST_F(TcpStore, BusyPortHasItsOwnError) {
  for (const bool token : {true, false}) {
    options_ = Options{.timeout = seconds(20)};
    token ? StartWithToken() : StartWithoutToken();
    const auto second = Serve(options_);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::kAlreadyExists);
    EXPECT_NE(second.error().message.find(options_.address), std::string::npos);
    EXPECT_NE(second.error().message.find("HOROVOD_RENDEZVOUS_ADDR"), std::string::npos);
  }
}

TEST_F(TcpStore, LostServerIsNamed) {
  StartWithToken();
  const auto store = Open();
  server_.reset();
  for (int i = 0; i < 2; ++i) {
    const auto set = store->Set("a", "b");
    ASSERT_FALSE(set);
    EXPECT_NE(set.error().message.find(options_.address), std::string::npos);
  }
}

TEST_F(TcpStore, AnotherMachineWithoutATokenIsRefusedWithTheFix) {
  for (const char* address : {"192.0.2.1:29500", "[2001:db8::1]:29500", "0.0.0.0:29500"}) {
    options_.address = address;
    for (const Error& error : {OpenStore(options_).error(), Serve(options_).error()}) {
      EXPECT_EQ(error.code, Code::kPermissionDenied);
      EXPECT_NE(error.message.find("HOROVOD_TOKEN_FILE"), std::string::npos);
      EXPECT_NE(error.message.find("HOROVOD_INSECURE=1"), std::string::npos);
    }
  }
}

TEST_F(TcpStore, WildcardIsNeverBound) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    options_.address = address;
    options_.token = *net::Token::Generate();
    EXPECT_EQ(Serve(options_).error().code, Code::kInvalidArgument);
  }
}

TEST_F(TcpStore, WithoutATokenNothingListensOnTheNet) {
  StartWithoutToken();
  const auto where = *net::ParseHostPort(options_.address);
  EXPECT_EQ(net::Connect(net::Resolve(where)->front(), Soon()).error().code, Code::kNotFound);
  options_.address = "[::1]:" + std::to_string(where.port);
  EXPECT_TRUE(Open()->Set("a", "b"));
}

TEST_F(TcpStore, Ipv6) {
  StartWithToken("[::1]:0");
  EXPECT_EQ(options_.address.substr(0, 6), "[::1]:");
  EXPECT_TRUE(Open()->Set("a", "b"));
}

TEST_F(TcpStore, DrainWaitsForGoodbyesAndIsBounded) {
  StartWithToken();
  auto first = Open();
  auto second = Open();
  ASSERT_TRUE(first->Set("a", "b") && second->Set("a", "b"));
  first.reset();
  const auto drained = server_->Drain(milliseconds(20));
  ASSERT_FALSE(drained);
  EXPECT_EQ(drained.error().code, Code::kDeadlineExceeded);
  std::thread leaving([&] { second.reset(); });
  EXPECT_TRUE(server_->Drain(seconds(20)));
  leaving.join();
  // Strangers do not count.
  const net::Fd stranger = Stranger();
  EXPECT_TRUE(server_->Drain(seconds(20)));
}

TEST_F(TcpStore, AClientThatDiesInAWaitCountsAsLeft) {
  StartWithoutToken();
  net::Fd dying = Stranger();
  const std::string bytes = std::string(tcp::kPreface) +
                            tcp::Encode(tcp::Request{.op = tcp::Op::kWait, .timeout_us = 60000000, .keys = {"x"}});
  ASSERT_TRUE(net::WriteFull(dying.get(), net::AsBytes(bytes), Soon()));
  std::array<uint8_t, tcp::kPreface.size()> preface;
  ASSERT_TRUE(net::ReadFull(dying.get(), preface, Soon()));
  dying.Reset();
  EXPECT_TRUE(server_->Drain(seconds(20)));
  EXPECT_TRUE(Open()->Set("x", "y"));
}

TEST_F(TcpStore, StoppingTheServerEndsPendingWaits) {
  StartWithToken();
  const auto store = Open();
  std::thread stop([&] { server_.reset(); });
  EXPECT_FALSE(store->Wait({"never"}, std::chrono::hours(1)));
  stop.join();
}

TEST_F(TcpStore, MemoryAndFileNeedNoServer) {
  EXPECT_FALSE(Serve({.address = "memory:x"}));
  EXPECT_FALSE(Serve({.address = "file:///tmp/x"}));
}

}  // namespace
}  // namespace hvd::rendezvous
