// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bytes over a connected non-blocking socket, plain or under TLS (tls.h): the same calls for both.
//
// Thread safety: one thread at a time.

#include <cstddef>
#include <memory>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/net/bytes.h"
#include "hvd/net/fd.h"

namespace hvd::net {

// What the socket must become before the call can go on; TLS may want to read in order to write.
enum class Want { kNothing, kRead, kWrite };

struct Transfer {
  size_t bytes = 0;
  Want want = Want::kNothing;  // set when bytes is 0 and the stream has not ended
  bool end = false;            // the other side has closed
};

class Stream {
 public:
  virtual ~Stream() = default;
  virtual int fd() const = 0;
  // Does what can be done now. kNothing: the handshake is complete. A plain stream has none.
  virtual Result<Want> TryHandshake() = 0;
  // Moves at least one byte, or says what it waits for. Data may be buffered inside: read until want is set before
  // sleeping.
  virtual Result<Transfer> TryRead(MutableBytes into) = 0;
  virtual Result<Transfer> TryWrite(Bytes data) = 0;
};

// The socket itself, still owned by the caller.
class BorrowedStream : public Stream {
 public:
  explicit BorrowedStream(int fd) : raw_(fd) {}
  int fd() const override { return raw_; }
  Result<Want> TryHandshake() override { return Want::kNothing; }
  Result<Transfer> TryRead(MutableBytes into) override;
  Result<Transfer> TryWrite(Bytes data) override;

 private:
  int raw_;
};

// The socket itself, owned.
class PlainStream final : public BorrowedStream {
 public:
  explicit PlainStream(Fd fd) : BorrowedStream(fd.get()), owned_(std::move(fd)) {}

 private:
  Fd owned_;
};

// The blocking forms, bounded by a deadline.
Status Handshake(Stream& stream, Time deadline);
Status ReadFull(Stream& stream, MutableBytes into, Time deadline);
Status WriteFull(Stream& stream, Bytes data, Time deadline);

}  // namespace hvd::net
