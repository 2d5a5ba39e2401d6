// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ordered messages to one peer, in two forms: control messages, which arrive unasked, and data on lanes, which the
// receiver asks for. A lane belongs to one operation of one process set, so operations never wait for each other's
// data.
//
// Thread safety: call with the progress token. Completions and handlers run inside Loop::RunOnce or Poll, never inside
// the call that causes them. Lifetime: a buffer passed in must stay valid until its completion runs, also after
// Close().

#include <sys/uio.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "hvd/base/monotonic_counter.h"
#include "hvd/base/result.h"
#include "hvd/base/types.h"

namespace hvd::transport {

using Lane = uint64_t;
using Completion = std::function<void(Status)>;
// Total bytes of this receive that have arrived so far.
using PartialArrival = std::function<void(size_t bytes)>;
using MessageHandler = std::function<void(std::span<const std::byte> message)>;

inline constexpr size_t kMaxMessageBytes = 1 << 20;

class Pair {
 public:
  virtual ~Pair() = default;
  virtual Rank peer() const = 0;
  // Bytes that the connection has taken and given, headers included. From any thread.
  virtual const PeerByteCounts& flow() const = 0;
  // One handler per pair; set it before the first RunOnce. Messages arrive in the order in which they were sent.
  virtual void OnMessage(MessageHandler handler) = 0;
  // Called at most once, when the connection ends for any reason but our own Close(): the reason, in words.
  virtual void OnClosed(std::function<void(Error)> handler) = 0;
  // Copies the message (at most kMaxMessageBytes) and returns at once.
  virtual void SendMessage(std::span<const std::byte> message) = 0;
  // As SendMessage, but it may wait for more to travel with: for the loop's next turn at most.
  virtual void SendMessageSoon(std::span<const std::byte> message) = 0;
  // The k-th Send of a lane goes to the k-th Recv of that lane on the other side; their byte counts must be equal, a
  // difference fails both sides' pair with kInternal. Zero bytes are allowed.
  virtual void Send(Lane lane, std::vector<iovec> data, Completion done) = 0;
  virtual void Recv(Lane lane, std::vector<iovec> into, PartialArrival on_bytes, Completion done) = 0;
  // For streams that no descriptor announces (shared-memory rings): moves what can be moved; true if anything did.
  virtual bool Poll() = 0;
  // Fails pending operations with kAborted. Idempotent. What was sent before is still delivered if the peer is alive:
  // messages, and data whose Send has completed, also to a Recv that comes after the end.
  virtual void Close() = 0;
  // Closed here, and not all that was sent before is written: a stream that is polled needs more polls for that.
  virtual bool IsSayingMore() const = 0;
};

}  // namespace hvd::transport
