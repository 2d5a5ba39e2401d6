// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/tcp/socket_options.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <mutex>

#include "hvd/base/log.h"
#include "hvd/net/fd.h"
#include "hvd/net/socket.h"

namespace hvd::transport::tcp {
namespace {

constexpr int kBufferBytes = 4 << 20;
// Unsent bytes that the kernel takes: enough to keep it busy while we are away, little enough that a small message on
// another lane does not wait behind megabytes.
constexpr int kUnsentBytes = 1 << 20;

void SetInt(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

// A size that the system cuts down would be worse than none: it also ends the kernel's own tuning.
bool BigBufferAllowed(int name) {
  const net::Fd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!probe) return false;
  SetInt(probe.get(), SOL_SOCKET, name, kBufferBytes);
  int granted = 0;
  socklen_t length = sizeof granted;
  return getsockopt(probe.get(), SOL_SOCKET, name, &granted, &length) == 0 && granted >= kBufferBytes;
}

}  // namespace

void Apply(const SocketOptions& options, int fd) {
  static const bool big_send = BigBufferAllowed(SO_SNDBUF);
  static const bool big_receive = BigBufferAllowed(SO_RCVBUF);
  SetInt(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (big_send) SetInt(fd, SOL_SOCKET, SO_SNDBUF, kBufferBytes);
  if (big_receive) SetInt(fd, SOL_SOCKET, SO_RCVBUF, kBufferBytes);
  SetInt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytes);
  if (options.user_timeout > Duration::zero()) {
    const auto millis = std::chrono::ceil<std::chrono::milliseconds>(options.user_timeout).count();
    SetInt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(millis));
  }
  if (auto status = net::SetCongestionControl(fd, options.congestion); !status) {
    static std::once_flag once;
    std::call_once(once, [&] { log::Warning("HOROVOD_TCP_CONGESTION: {}.", status.error().message); });
  }
}

}  // namespace hvd::transport::tcp
