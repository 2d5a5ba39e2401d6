// SPDX-License-Identifier: Apache-2.0
#pragma once
// A place in a list of buffers: what has been sent or filled lies before it.

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "hvd/kernel/kernel.h"

namespace hvd::transport {

class IovecCursor {
 public:
  IovecCursor() = default;
  explicit IovecCursor(std::vector<iovec> buffers) : buffers_(std::move(buffers)) {
    for (const iovec& buffer : buffers_) left_ += buffer.iov_len;
  }

  size_t left() const { return left_; }

  // Appends at most `bytes` bytes from here, in at most `pieces` pieces, to `out` (unless that is null); returns how
  // many bytes that are.
  size_t View(size_t bytes, size_t pieces, std::vector<iovec>* out) const {
    size_t viewed = 0;
    size_t offset = offset_;
    for (size_t i = index_; i < buffers_.size() && viewed < bytes && pieces > 0; ++i, offset = 0) {
      const size_t length = std::min(buffers_[i].iov_len - offset, bytes - viewed);
      if (length == 0) continue;
      if (out != nullptr) out->push_back({static_cast<std::byte*>(buffers_[i].iov_base) + offset, length});
      viewed += length;
      --pieces;
    }
    return viewed;
  }

  void Advance(size_t bytes) {
    left_ -= bytes;
    while (bytes > 0) {
      const size_t length = std::min(buffers_[index_].iov_len - offset_, bytes);
      offset_ += length;
      bytes -= length;
      if (offset_ == buffers_[index_].iov_len) {
        ++index_;
        offset_ = 0;
      }
    }
  }

  // Copies into the buffers and moves on. `from` must fit.
  void Fill(std::span<const std::byte> from) {
    left_ -= from.size();
    while (!from.empty()) {
      const size_t length = std::min(buffers_[index_].iov_len - offset_, from.size());
      if (length > 0) kernel::Copy(static_cast<std::byte*>(buffers_[index_].iov_base) + offset_, from.data(), length);
      offset_ += length;
      from = from.subspan(length);
      if (offset_ == buffers_[index_].iov_len) {
        ++index_;
        offset_ = 0;
      }
    }
  }

 private:
  std::vector<iovec> buffers_;
  size_t index_ = 0;
  size_t offset_ = 0;
  size_t left_ = 0;
};

}  // namespace hvd::transport
