// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "hvd/net/deadline.h"
#include "hvd/net/stream.h"

namespace hvd::net {
namespace {

Result<Fd> NewSocket(const Address& address) {
  Fd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Fail(Code::kResourceExhausted, "no socket for {}: {}", address.ToString(), ErrnoText(errno));
  return fd;
}

void SetFlag(int fd, int level, int name) {
  const int on = 1;
  ::setsockopt(fd, level, name, &on, sizeof(on));
}

// bbr, the default of some systems, paces itself by the clock: between ranks that share cores it is several times
// slower. Where cubic is not to be had the default stays.
void SteadyPace(int fd) {
  constexpr char kCubic[] = "cubic";
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kCubic, sizeof kCubic - 1);
}

tl::unexpected<Error> ConnectError(const Address& address, int error) {
  switch (error) {
    case ECONNREFUSED:
    case ENOENT:
      return Fail(Code::kNotFound, "nobody listens at {}", address.ToString());
    case ETIMEDOUT:
      return Fail(Code::kDeadlineExceeded, "no answer from {}", address.ToString());
    default:
      return Fail(Code::kUnknown, "cannot connect to {}: {}", address.ToString(), ErrnoText(error));
  }
}

}  // namespace

std::string ErrnoText(int error) {
  std::string text = std::generic_category().message(error);
  if (error == EMFILE) text += " (raise ulimit -n)";
  return text;
}

Result<Fd> Listen(const Address& address, int backlog) {
  if (address.IsWildcard()) {
    return Fail(Code::kInvalidArgument,
                "{} would listen on every interface: give the one address that ranks should use", address.ToString());
  }
  HVD_ASSIGN_OR_RETURN(Fd fd, NewSocket(address));
  if (!address.IsUnix()) SetFlag(fd.get(), SOL_SOCKET, SO_REUSEADDR);
  if (address.family() == AF_INET6) SetFlag(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY);
  const bool bound = ::bind(fd.get(), address.raw(), address.length()) == 0;
  if (bound && ::listen(fd.get(), backlog) == 0) return fd;
  const int error = errno;
  if (error == EADDRINUSE) {
    return Fail(Code::kAlreadyExists, "{} is in use by another program: end it or choose another port",
                address.ToString());
  }
  if (error == EADDRNOTAVAIL) {
    return Fail(Code::kFailedPrecondition, "{} is no address of this machine", address.ToString());
  }
  const Code code = error == EACCES ? Code::kPermissionDenied : Code::kUnknown;
  return Fail(code, "cannot listen at {}: {}", address.ToString(), ErrnoText(error));
}

Result<std::optional<Fd>> Accept(int listener) {
  Fd fd;
  do {
    fd.Reset(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  } while (!fd && (errno == EINTR || errno == ECONNABORTED));
  if (fd) {
    SetFlag(fd.get(), IPPROTO_TCP, TCP_NODELAY);  // Fails on unix sockets, which do not need it.
    SteadyPace(fd.get());
    return std::optional<Fd>(std::move(fd));
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<Fd>();
  const bool closed = errno == EINVAL || errno == EBADF;
  return Fail(closed ? Code::kInternal : Code::kResourceExhausted, "cannot accept a connection: {}", ErrnoText(errno));
}

Result<Fd> StartConnect(const Address& address) {
  HVD_ASSIGN_OR_RETURN(Fd fd, NewSocket(address));
  if (!address.IsUnix()) SetFlag(fd.get(), IPPROTO_TCP, TCP_NODELAY);
  if (!address.IsUnix()) SteadyPace(fd.get());
  if (::connect(fd.get(), address.raw(), address.length()) == 0 || errno == EINPROGRESS || errno == EINTR) return fd;
  // A unix listener with a full backlog says EAGAIN at once, with nothing to wait on.
  return ConnectError(address, errno);
}

Status FinishConnect(int fd, const Address& address) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return ConnectError(address, error);
  return {};
}

Result<Fd> Connect(const Address& address, Time deadline) {
  HVD_ASSIGN_OR_RETURN(Fd fd, StartConnect(address));
  if (auto ready = WaitFor(fd.get(), POLLOUT, deadline); !ready) {
    if (ready.error().code != Code::kDeadlineExceeded) return Fail(std::move(ready).error());
    return ConnectError(address, ETIMEDOUT);
  }
  HVD_RETURN_IF_ERROR(FinishConnect(fd.get(), address));
  return fd;
}

Result<Address> LocalAddress(int fd) {
  sockaddr_storage raw{};
  socklen_t length = sizeof(raw);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&raw), &length) != 0) {
    return Fail(Code::kInternal, "getsockname: {}", ErrnoText(errno));
  }
  return Address::FromRaw(reinterpret_cast<sockaddr*>(&raw), length);
}

Result<Address> PeerAddress(int fd) {
  sockaddr_storage raw{};
  socklen_t length = sizeof(raw);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&raw), &length) != 0) {
    return Fail(Code::kUnknown, "getpeername: {}", ErrnoText(errno));
  }
  return Address::FromRaw(reinterpret_cast<sockaddr*>(&raw), length);
}

Status SetCongestionControl(int fd, const std::string& name) {
  if (name.empty()) return {};
  if (::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0) return {};
  return Fail(Code::kNotFound,
              "congestion control '{}' cannot be used: {}; see net.ipv4.tcp_allowed_congestion_control", name,
              ErrnoText(errno));
}

Status CheckPeerIsSameUser(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return Fail(Code::kPermissionDenied, "the peer's user is unknown: {}", ErrnoText(errno));
  }
  if (peer.uid == ::geteuid()) return {};
  return Fail(Code::kPermissionDenied, "the process at the other end (pid {}) runs as user {}, this one as {}",
              peer.pid, peer.uid, ::geteuid());
}

Status WaitFor(int fd, short events, Time deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, PollMillis(deadline));
    if (ready > 0) return {};
    if (ready == 0 && Now() >= deadline) return Fail(Code::kDeadlineExceeded, "nothing happened in time");
    if (ready < 0 && errno != EINTR) return Fail(Code::kInternal, "poll: {}", ErrnoText(errno));
  }
}

Status ReadFull(int fd, MutableBytes into, Time deadline) {
  BorrowedStream stream(fd);
  return ReadFull(stream, into, deadline);
}

Status WriteFull(int fd, Bytes data, Time deadline) {
  BorrowedStream stream(fd);
  return WriteFull(stream, data, deadline);
}

}  // namespace hvd::net
