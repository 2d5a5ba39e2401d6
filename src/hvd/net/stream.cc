// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "hvd/net/socket.h"

namespace hvd::net {
namespace {

constexpr const char* kClosed = "the other side closed the connection";

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

Status WaitFor(const Stream& stream, Want want, Time deadline) {
  return net::WaitFor(stream.fd(), want == Want::kWrite ? POLLOUT : POLLIN, deadline);
}

}  // namespace

Result<Transfer> BorrowedStream::TryRead(MutableBytes into) {
  if (into.empty()) return Transfer{};
  ssize_t count;
  do {
    count = ::recv(raw_, into.data(), into.size(), MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count > 0) return Transfer{.bytes = static_cast<size_t>(count)};
  if (count == 0 || errno == ECONNRESET) return Transfer{.end = true};
  if (WouldBlock(errno)) return Transfer{.want = Want::kRead};
  return Fail(Code::kUnknown, "cannot read from the connection: {}", ErrnoText(errno));
}

Result<Transfer> BorrowedStream::TryWrite(Bytes data) {
  if (data.empty()) return Transfer{};
  ssize_t count;
  do {
    count = ::send(raw_, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  if (count >= 0) return Transfer{.bytes = static_cast<size_t>(count)};
  if (WouldBlock(errno)) return Transfer{.want = Want::kWrite};
  if (errno == EPIPE || errno == ECONNRESET) return Transfer{.end = true};
  return Fail(Code::kUnknown, "cannot write to the connection: {}", ErrnoText(errno));
}

Status Handshake(Stream& stream, Time deadline) {
  for (;;) {
    HVD_ASSIGN_OR_RETURN(const Want want, stream.TryHandshake());
    if (want == Want::kNothing) return {};
    HVD_RETURN_IF_ERROR(WaitFor(stream, want, deadline));
  }
}

Status ReadFull(Stream& stream, MutableBytes into, Time deadline) {
  while (!into.empty()) {
    HVD_ASSIGN_OR_RETURN(const Transfer moved, stream.TryRead(into));
    if (moved.end) return Fail(Code::kUnknown, "{}", kClosed);
    into = into.subspan(moved.bytes);
    if (moved.want != Want::kNothing) HVD_RETURN_IF_ERROR(WaitFor(stream, moved.want, deadline));
  }
  return {};
}

Status WriteFull(Stream& stream, Bytes data, Time deadline) {
  while (!data.empty()) {
    HVD_ASSIGN_OR_RETURN(const Transfer moved, stream.TryWrite(data));
    if (moved.end) return Fail(Code::kUnknown, "{}", kClosed);
    data = data.subspan(moved.bytes);
    if (moved.want != Want::kNothing) HVD_RETURN_IF_ERROR(WaitFor(stream, moved.want, deadline));
  }
  return {};
}

}  // namespace hvd::net
