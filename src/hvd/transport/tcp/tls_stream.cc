// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "hvd/transport/tcp/stream.h"

namespace hvd::transport::tcp {
namespace {

// The most that one TLS record carries.
constexpr size_t kRecordBytes = 16 << 10;

class TlsByteStream final : public ByteStream {
 public:
  explicit TlsByteStream(std::unique_ptr<net::Stream> stream) : stream_(std::move(stream)) {
    held_.reserve(kRecordBytes);
  }

  // Gathers pieces into whole records: what is given to TLS once cannot be taken back, so it must not lie in user
  // memory.
  Result<size_t> TryWrite(std::span<const iovec> data, bool /*more*/) override {
    HVD_ASSIGN_OR_RETURN(const bool flushed, TryFlush());
    if (!flushed) return size_t{0};
    held_.clear();
    written_ = 0;
    for (const iovec& piece : data) {
      const size_t length = std::min(piece.iov_len, kRecordBytes - held_.size());
      const auto* from = static_cast<const uint8_t*>(piece.iov_base);
      held_.insert(held_.end(), from, from + length);
      if (held_.size() == kRecordBytes) break;
    }
    const size_t took = held_.size();
    HVD_RETURN_IF_ERROR(TryFlush());
    return took;
  }

  Result<bool> TryFlush() override {
    while (written_ < held_.size()) {
      HVD_ASSIGN_OR_RETURN(const net::Transfer moved, stream_->TryWrite(net::Bytes(held_).subspan(written_)));
      if (moved.end) return Fail(Code::kUnknown, "the other side is gone");
      if (moved.bytes == 0) return false;
      written_ += moved.bytes;
    }
    return true;
  }

  Result<size_t> TryRead(std::span<const iovec> into) override {
    size_t bytes = 0;
    for (const iovec& piece : into) {
      auto rest = net::MutableBytes(static_cast<uint8_t*>(piece.iov_base), piece.iov_len);
      while (!rest.empty()) {
        const auto moved = stream_->TryRead(rest);
        // What was read before is delivered first; the end shows again.
        if (!moved) return bytes > 0 ? Result<size_t>(bytes) : Fail(moved.error());
        if (moved->end) return bytes > 0 ? Result<size_t>(bytes) : Fail(Code::kUnknown, "the other side is gone");
        read_wants_write_ = moved->want == net::Want::kWrite;
        if (moved->bytes == 0) return bytes;
        bytes += moved->bytes;
        rest = rest.subspan(moved->bytes);
      }
    }
    return bytes;
  }

  void ShutdownWrite() override { shutdown(stream_->fd(), SHUT_WR); }
  int fd() const override { return stream_->fd(); }
  uint32_t WantedEvents(bool has_output) const override {
    return has_output || read_wants_write_ ? EPOLLIN | EPOLLOUT : EPOLLIN;
  }

 private:
  std::unique_ptr<net::Stream> stream_;
  std::vector<uint8_t> held_;  // the record being written
  size_t written_ = 0;         // of held_
  bool read_wants_write_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> CreateTlsByteStream(std::unique_ptr<net::Stream> stream) {
  return std::make_unique<TlsByteStream>(std::move(stream));
}

}  // namespace hvd::transport::tcp
