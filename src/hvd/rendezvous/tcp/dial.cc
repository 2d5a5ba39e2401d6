// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/dial.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <thread>

#include "hvd/net/deadline.h"
#include "hvd/net/socket.h"
#include "hvd/rendezvous/tcp/endpoint.h"
#include "hvd/rendezvous/tcp/other_user.h"
#include "hvd/rendezvous/tcp/protocol.h"

namespace hvd::rendezvous::tcp {
namespace {

using std::chrono::milliseconds;

// With several addresses of one name, a silent one must not use up the time of the others.
constexpr Duration kConnectShare = std::chrono::seconds(3);

constexpr Duration kKnockTime = milliseconds(200);

// What another attempt cannot cure.
bool IsFinal(Code code) {
  return code == Code::kPermissionDenied || code == Code::kFailedPrecondition || code == Code::kInvalidArgument ||
         code == Code::kResourceExhausted;
}

Status ExchangePrefaces(net::Stream& stream, Time deadline) {
  HVD_RETURN_IF_ERROR(net::WriteFull(stream, net::AsBytes(kPreface), deadline));
  std::string answer;
  std::array<uint8_t, kPreface.size()> byte;
  while (answer.size() < kPreface.size()) {
    auto read = net::ReadFull(stream, net::MutableBytes(byte).first(1), deadline);
    // A server that closes in silence may be full or just ending; one that says something else is another program.
    if (!read && answer.empty()) return read;
    if (read) answer.push_back(static_cast<char>(byte[0]));
    if (!read || !kPreface.starts_with(answer)) {
      return Fail(Code::kFailedPrecondition,
                  "it does not speak the store's protocol; if it was started with a job token, set HOROVOD_TOKEN_FILE "
                  "here, too");
    }
  }
  return {};
}

Result<std::unique_ptr<net::Stream>> DialOnce(const Endpoint& endpoint, const net::Address& address,
                                              const std::shared_ptr<net::TlsContext>& tls, Time deadline) {
  const bool alone = endpoint.addresses.size() == 1;
  HVD_ASSIGN_OR_RETURN(net::Fd fd,
                       net::Connect(address, alone ? deadline : std::min(deadline, net::DeadlineAfter(kConnectShare))));
  if (endpoint.protection == Protection::kSameUser) HVD_RETURN_IF_ERROR(net::CheckPeerIsSameUser(fd.get()));
  HVD_ASSIGN_OR_RETURN(std::unique_ptr<net::Stream> stream, MakeStream(tls, std::move(fd)));
  HVD_RETURN_IF_ERROR(net::Handshake(*stream, deadline));
  HVD_RETURN_IF_ERROR(ExchangePrefaces(*stream, deadline));
  return stream;
}

Result<std::unique_ptr<net::Stream>> DialAll(const Options& options, const std::shared_ptr<net::TlsContext>& tls,
                                             Time deadline) {
  HVD_ASSIGN_OR_RETURN(const Endpoint endpoint, ResolveEndpoint(options));
  if (endpoint.needs_port()) {
    return Fail(Code::kInvalidArgument, "the store's address {} has no port", options.address);
  }
  Error last;
  for (const net::Address& address : endpoint.addresses) {
    auto stream = DialOnce(endpoint, address, tls, deadline);
    if (stream) return stream;
    last = std::move(stream).error();
    if (IsFinal(last.code)) return Fail(last.code, "the store at {}: {}", options.address, last.message);
  }
  return Fail(std::move(last));
}

// A token makes the difference between a TCP port and a unix socket of this machine. So where only one side has one,
// the other is not found: this looks whether somebody is at the other door, and lets the server there know that we
// came.
std::string KnockAtTheOtherDoor(const Options& options, const std::shared_ptr<net::TlsContext>& tls) {
  if (options.address.starts_with("local:")) return "";  // it has one door
  const auto where = net::ParseHostPort(options.address);
  const auto addresses = where ? net::Resolve(*where) : Result<std::vector<net::Address>>(std::vector<net::Address>());
  if (!addresses || addresses->empty()) return "";
  const net::Address& front = addresses->front();
  const auto door = options.token ? LocalName(where->port) : Result<net::Address>(front);
  if (!front.IsLoopback() || !door) return "";
  const Time deadline = net::DeadlineAfter(kKnockTime);
  auto fd = net::Connect(*door, deadline);
  if (!fd) return "";
  if (auto stream = MakeStream(tls, std::move(*fd)); stream && net::Handshake(**stream, deadline)) {
    (void)ExchangePrefaces(**stream, deadline);
  }
  if (options.token) return "; a store without a job token is there: was HOROVOD_TOKEN_FILE not given to rank 0?";
  return fmt::format("; somebody listens at TCP {}: if rank 0 was given HOROVOD_TOKEN_FILE, set it here, too",
                     front.ToString());
}

// Whose store is there, if it is another user's; that one is let know that we came.
std::string KnockAtAnotherUsersDoor(const Options& options) {
  const auto endpoint = ResolveEndpoint(options);
  if (!endpoint || endpoint->protection != Protection::kSameUser) return "";
  const bool named = !endpoint->name.empty();
  const std::string store = named ? endpoint->name : std::to_string(endpoint->where.port);
  const auto user = OtherUserWith(store);
  if (!user) return "";
  const auto door = net::Address::UnixAbstract(SocketName(*user, store));
  if (!door) return "";
  (void)net::Connect(*door, net::DeadlineAfter(kKnockTime));
  return fmt::format("; a store of user {} is there, and this process runs as user {}: start all ranks as one user{}",
                     *user, ::geteuid(), named ? "" : ", or give all of them the same HOROVOD_TOKEN_FILE");
}

// Ranks that started together must not come back together.
Duration Jittered(Duration pause) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return pause * static_cast<int64_t>(50 + random() % 51) / 100;
}

}  // namespace

Result<std::unique_ptr<net::Stream>> Dial(const Options& options) {
  HVD_ASSIGN_OR_RETURN(const std::shared_ptr<net::TlsContext> tls, MakeTls(options, net::TlsSide::kClient));
  const Time deadline = net::DeadlineAfter(options.timeout);
  Duration pause = milliseconds(2);
  std::string found;
  for (int attempt = 1;; ++attempt) {
    auto stream = DialAll(options, tls, deadline);
    if (stream || IsFinal(stream.error().code)) return stream;
    const Duration left = net::Left(deadline);
    // Not at first, when the server is probably just about to come.
    if (found.empty() && (attempt % 8 == 0 || left == Duration::zero())) {
      found = KnockAtTheOtherDoor(options, tls);
      if (found.empty()) found = KnockAtAnotherUsersDoor(options);
    }
    if (left == Duration::zero()) {
      return Fail(Code::kDeadlineExceeded, "no store answered at {} within {:.3g} s; is rank 0 running? ({}{})",
                  options.address, net::InSeconds(options.timeout), stream.error().message, found);
    }
    std::this_thread::sleep_for(std::min(Jittered(pause), left));
    pause = std::min<Duration>(pause * 2, milliseconds(100));
  }
}

}  // namespace hvd::rendezvous::tcp
