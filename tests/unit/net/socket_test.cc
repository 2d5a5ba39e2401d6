// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <thread>
#include <vector>

#include "hvd/net/deadline.h"

namespace hvd::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Time Soon() { return DeadlineAfter(seconds(20)); }

struct Connected {
  Fd listener, client, server;
};

Connected Connect(const Address& wanted) {
  Connected all;
  all.listener = *Listen(wanted);
  const Address at = *LocalAddress(all.listener.get());
  all.client = *net::Connect(at, Soon());
  EXPECT_TRUE(WaitFor(all.listener.get(), POLLIN, Soon()));
  all.server = std::move(**Accept(all.listener.get()));
  return all;
}

class Sockets : public ::testing::TestWithParam<const char*> {
 protected:
  Address address() const {
    if (std::string(GetParam()) == "unix") return *Address::UnixAbstract("hvd-socket-test-" + std::to_string(getpid()));
    return Resolve({GetParam(), 0})->front();
  }
};

TEST_P(Sockets, CarryBytesBothWays) {
  Connected all = Connect(address());
  std::vector<uint8_t> sent(3 << 20);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<uint8_t>(i * 7);
  std::thread writer([&] { EXPECT_TRUE(WriteFull(all.client.get(), sent, Soon())); });
  std::vector<uint8_t> got(sent.size());
  EXPECT_TRUE(ReadFull(all.server.get(), got, Soon()));
  writer.join();
  EXPECT_EQ(got, sent);
}

TEST_P(Sockets, AreNonBlockingAndClosedInOtherPrograms) {
  const Connected all = Connect(address());
  for (const Fd* fd : {&all.listener, &all.client, &all.server}) {
    EXPECT_TRUE(fcntl(fd->get(), F_GETFL) & O_NONBLOCK);
    EXPECT_TRUE(fcntl(fd->get(), F_GETFD) & FD_CLOEXEC);
  }
  EXPECT_FALSE(*Accept(all.listener.get()));
}

TEST(Socket, ErrorsSayWhatToDoIfThatIsAlwaysTheSame) {
  EXPECT_EQ(ErrnoText(EMFILE), "Too many open files (raise ulimit -n)");
  EXPECT_EQ(ErrnoText(ECONNREFUSED), "Connection refused");
}

TEST(Socket, AListenerThatWasShutDownIsNoLackOfDescriptors) {
  const auto listener = Listen((*Resolve({"127.0.0.1", 0}))[0]);
  ASSERT_TRUE(listener);
  ASSERT_EQ(::shutdown(listener->get(), SHUT_RDWR), 0);
  const auto accepted = Accept(listener->get());
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code, Code::kInternal);
}

TEST_P(Sockets, TakenAddressHasItsOwnError) {
  const Fd listener = *Listen(address());
  const auto second = Listen(*LocalAddress(listener.get()));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kAlreadyExists);
}

TEST_P(Sockets, NobodyListensIsNotFound) {
  Address gone;
  {
    const Fd listener = *Listen(address());
    gone = *LocalAddress(listener.get());
  }
  const auto fd = net::Connect(gone, Soon());
  ASSERT_FALSE(fd);
  EXPECT_EQ(fd.error().code, Code::kNotFound);
}

TEST_P(Sockets, ReadEndsAtItsDeadlineAndAtTheStreamsEnd) {
  Connected all = Connect(address());
  uint8_t byte;
  const auto late = ReadFull(all.server.get(), {&byte, 1}, DeadlineAfter(milliseconds(1)));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  all.client.Reset();
  const auto ended = ReadFull(all.server.get(), {&byte, 1}, Soon());
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Code::kUnknown);
}

// In a program that does not ignore SIGPIPE this would end the process.
TEST_P(Sockets, WritingToAClosedPeerIsAnErrorNotASignal) {
  Connected all = Connect(address());
  all.client.Reset();
  const std::vector<uint8_t> data(1 << 20);
  Status written;
  for (int i = 0; i < 100 && written; ++i) written = WriteFull(all.server.get(), data, Soon());
  EXPECT_FALSE(written);
}

INSTANTIATE_TEST_SUITE_P(Families, Sockets, ::testing::Values("127.0.0.1", "::1", "unix"), [](const auto& info) {
  return std::string(info.param) == "unix" ? "Unix" : std::string(info.param) == "::1" ? "V6" : "V4";
});

TEST(Socket, TcpIsNotDelayed) {
  const Connected all = Connect(Resolve({"127.0.0.1", 0})->front());
  for (const Fd* fd : {&all.client, &all.server}) {
    int on = 0;
    socklen_t length = sizeof(on);
    ASSERT_EQ(getsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &on, &length), 0);
    EXPECT_EQ(on, 1);
  }
}

TEST(Socket, WildcardIsRefused) {
  for (const char* host : {"0.0.0.0", "::"}) {
    const auto listener = Listen(Resolve({host, 0})->front());
    ASSERT_FALSE(listener);
    EXPECT_EQ(listener.error().code, Code::kInvalidArgument);
  }
}

TEST(Socket, CongestionControlByName) {
  const Connected all = Connect(Resolve({"127.0.0.1", 0})->front());
  EXPECT_TRUE(SetCongestionControl(all.client.get(), ""));
  EXPECT_TRUE(SetCongestionControl(all.client.get(), "reno"));
  const auto bad = SetCongestionControl(all.client.get(), "nosuch");
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("nosuch"), std::string::npos);
}

TEST(Socket, PeerOfAUnixSocketIsThisUser) {
  const Connected all = Connect(*Address::UnixAbstract("hvd-peer-test-" + std::to_string(getpid())));
  EXPECT_TRUE(CheckPeerIsSameUser(all.client.get()));
  EXPECT_TRUE(CheckPeerIsSameUser(all.server.get()));
}

// A TCP socket has no credentials: fails closed.
TEST(Socket, PeerOfATcpSocketIsUnknown) {
  const Connected all = Connect(Resolve({"127.0.0.1", 0})->front());
  EXPECT_FALSE(CheckPeerIsSameUser(all.client.get()));
}

TEST(Fd, OwnsAndMoves) {
  Fd a(dup(0));
  const int raw = a.get();
  Fd b(std::move(a));
  EXPECT_FALSE(a);
  EXPECT_EQ(b.get(), raw);
  b.Reset();
  EXPECT_EQ(fcntl(raw, F_GETFD), -1);
}

}  // namespace
}  // namespace hvd::net
