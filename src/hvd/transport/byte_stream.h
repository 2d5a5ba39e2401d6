// SPDX-License-Identifier: Apache-2.0
#pragma once
// An ordered, reliable, non-blocking stream of bytes to one peer: a socket, a TLS session, a ring in shared memory.
//
// Thread safety: call with the progress token.
// Lifetime: the destructor releases the stream at once; what TryWrite took may or may not reach the peer then.

#include <sys/epoll.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "hvd/base/result.h"

namespace hvd::transport {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Takes a prefix of the bytes and says how many; 0 means that it would block. Fewer than offered says nothing. After
  // 0 the same bytes are offered again, in front of others. `more`: others follow at once, so that the end of these may
  // wait to travel with them.
  virtual Result<size_t> TryWrite(std::span<const iovec> data, bool more) = 0;
  // For streams that hold bytes back: tries to pass on what TryWrite took. False: some are still here.
  virtual Result<bool> TryFlush() { return true; }
  // Fills a prefix of the buffers and says how many bytes came; 0 means that there are none now. The end of the stream
  // is an error, kUnknown.
  virtual Result<size_t> TryRead(std::span<const iovec> into) = 0;
  // False if the last TryRead showed that nothing is left, which saves asking.
  virtual bool MayHaveMore() const { return true; }
  // For polled streams: true if TryRead would surely return 0. Must be cheap.
  virtual bool NothingToRead() const { return false; }
  // Tells the peer that nothing more will be written. Reading goes on.
  virtual void ShutdownWrite() = 0;
  // The descriptor that a loop watches for WantedEvents(); -1 if the stream must be polled.
  virtual int fd() const { return -1; }
  virtual uint32_t WantedEvents(bool has_output) const { return has_output ? EPOLLIN | EPOLLOUT : EPOLLIN; }
};

}  // namespace hvd::transport
