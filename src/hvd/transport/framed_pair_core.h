// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stands behind a FramedPair: the stream, both halves of the protocol, and the calls to user code. It is shared
// with the loop, because it must outlive the pair where a handler destroys the pair or where goodbye is still being
// said.
//
// States: open -> draining (we closed or failed; the rest is written, then the peer's end is awaited) -> gone;
//         open -> gone (the peer's end). User calls are possible in all of them.
//
// Thread safety: call with the progress token.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hvd/loop/loop.h"
#include "hvd/transport/byte_stream.h"
#include "hvd/transport/framed_pair_inbox.h"
#include "hvd/transport/framed_pair_ops.h"
#include "hvd/transport/framed_pair_outbox.h"
#include "hvd/transport/pair.h"
#include "hvd/transport/seal.h"

namespace hvd::transport {

class FramedPairCore : public std::enable_shared_from_this<FramedPairCore> {
 public:
  FramedPairCore(Rank peer, std::unique_ptr<ByteStream> stream, loop::Loop* loop, std::unique_ptr<Seal> seal)
      : peer_(peer), stream_(std::move(stream)), loop_(loop), seal_(std::move(seal)) {}

  Status Start();
  Rank peer() const { return peer_; }
  const PeerByteCounts& flow() const { return flow_; }
  void OnMessage(MessageHandler handler) { on_message_ = std::make_shared<MessageHandler>(std::move(handler)); }
  void OnClosed(std::function<void(Error)> handler) { on_closed_ = std::move(handler); }
  void SendMessage(std::span<const std::byte> message);
  void SendMessageSoon(std::span<const std::byte> message);
  void Send(Lane lane, std::vector<iovec> data, Completion done);
  void Recv(Lane lane, std::vector<iovec> into, PartialArrival on_bytes, Completion done);
  bool Poll();
  void Close();
  bool IsSayingMore() const { return state_ == State::kDraining && !said_all_; }
  // The pair is being destroyed: no handler runs any more, and a polled stream is let go.
  void Detach();

 private:
  enum class State { kOpen, kDraining, kGone };

  // False: nothing was added to the outbox.
  bool AddMessage(std::span<const std::byte> message);
  void OnReady();
  // Both return whether anything moved.
  bool ReadSome();
  bool WriteSome();
  void Dispatch(const InboxEvent& event);
  // The authentication code of a frame that is to be sent; empty without a seal.
  std::span<const std::byte> CodeOf(FrameType type, std::span<const std::byte> payload);
  // The payload of a frame that came, without its code; nothing if the code is wrong, which ends the pair.
  std::optional<std::span<const std::byte>> Opened(FrameType type, std::span<const std::byte> payload);
  void AddDueBytes(const std::shared_ptr<RecvOp>& op);
  void OnWriteError(const Error& error);
  void DrainReads();
  void UpdateEvents();
  // After a call from outside: writes what can be written at once. What only prepares for data waits for more calls:
  // until one that is urgent, or the loop's next turn.
  void Flush();
  void RunDue();
  // Runs and writes what is due in the loop's next turn.
  void DeferDue();
  // Fails pending operations. `by_peer`: what it has sent whole can still be received.
  void EndOpen(Error error, bool tell_owner, bool by_peer);
  void StartDraining();
  // Ends it because of what happened here, and tells the peer why.
  void FailHere(Error error);
  // Ends it because the peer is gone, or says so.
  void FailByPeer(Error error);
  void Release();
  Error Describe(const Error& error, std::string_view what) const;

  const Rank peer_;
  std::unique_ptr<ByteStream> stream_;
  loop::Loop* const loop_;
  const std::unique_ptr<Seal> seal_;
  net::Gmac::Tag code_{};  // the last that CodeOf has made
  Outbox outbox_;
  Inbox inbox_{&outbox_};
  PeerByteCounts flow_;
  State state_ = State::kOpen;
  std::optional<Error> end_;  // why the state is not open
  std::shared_ptr<MessageHandler> on_message_ = std::make_shared<MessageHandler>();
  std::function<void(Error)> on_closed_;
  DueCalls due_;
  bool deferred_ = false;    // a RunDue and a WriteSome are deferred
  bool in_handler_ = false;  // inside OnReady: it flushes and runs due calls at its end
  bool write_blocked_ = false;
  bool said_all_ = false;  // draining: everything is written
  uint32_t watched_events_ = 0;
  loop::TimerId drain_timer_ = 0;
};

}  // namespace hvd::transport
