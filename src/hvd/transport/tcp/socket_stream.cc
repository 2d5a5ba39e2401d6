// SPDX-License-Identifier: Apache-2.0
#include <limits.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "hvd/net/socket.h"
#include "hvd/transport/tcp/stream.h"

namespace hvd::transport::tcp {
namespace {

size_t TotalBytes(std::span<const iovec> pieces) {
  size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

class SocketStream final : public ByteStream {
 public:
  explicit SocketStream(net::Fd fd) : fd_(std::move(fd)) {}

  Result<size_t> TryWrite(std::span<const iovec> data, bool more) override {
    msghdr message = Message(data);
    const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
    if (sent >= 0) return static_cast<size_t>(sent);
    if (WouldBlock(errno)) return size_t{0};
    return Fail(Code::kUnknown, "{}", net::ErrnoText(errno));
  }

  Result<size_t> TryRead(std::span<const iovec> into) override {
    msghdr message = Message(into);
    const ssize_t got = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
    may_have_more_ = false;
    if (got > 0) {
      may_have_more_ = static_cast<size_t>(got) == TotalBytes(into.first(message.msg_iovlen));
      return static_cast<size_t>(got);
    }
    if (got == 0) return Fail(Code::kUnknown, "the other side is gone");
    if (WouldBlock(errno)) return size_t{0};
    return Fail(Code::kUnknown, "{}", net::ErrnoText(errno));
  }

  bool MayHaveMore() const override { return may_have_more_; }
  void ShutdownWrite() override { shutdown(fd_.get(), SHUT_WR); }
  int fd() const override { return fd_.get(); }

 private:
  static msghdr Message(std::span<const iovec> pieces) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = std::min<size_t>(pieces.size(), IOV_MAX);
    return message;
  }

  net::Fd fd_;
  bool may_have_more_ = true;
};

}  // namespace

std::unique_ptr<ByteStream> CreateSocketStream(net::Fd fd) { return std::make_unique<SocketStream>(std::move(fd)); }

}  // namespace hvd::transport::tcp
