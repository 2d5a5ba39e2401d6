// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/framed_pair_core.h"

#include <algorithm>
#include <array>
#include <utility>

namespace hvd::transport {
namespace {

// Work per call; others want their turn.
constexpr size_t kStepBytes = 1 << 20;
constexpr Duration kDrainTime = std::chrono::seconds(5);

}  // namespace

Status FramedPairCore::Start() {
  if (stream_->fd() < 0) return {};
  watched_events_ = stream_->WantedEvents(false);
  // The loop keeps this object as long as the descriptor is watched.
  return loop_->Watch(stream_->fd(), watched_events_, [self = shared_from_this()](uint32_t) { self->OnReady(); });
}

bool FramedPairCore::AddMessage(std::span<const std::byte> message) {
  if (state_ != State::kOpen) return false;
  if (message.size() > kMaxMessageBytes) {
    FailHere({Code::kInvalidArgument, fmt::format("a control message of {} bytes is too large", message.size())});
    return false;
  }
  outbox_.AddMessage(message, CodeOf(FrameType::kMessage, message));
  return true;
}

std::span<const std::byte> FramedPairCore::CodeOf(FrameType type, std::span<const std::byte> payload) {
  if (seal_ == nullptr) return {};
  // Without a code, which OpenSSL makes of anything, the peer refuses the frame.
  if (auto code = seal_->Close(type, payload)) code_ = *code;
  return std::as_bytes(std::span(code_));
}

std::optional<std::span<const std::byte>> FramedPairCore::Opened(FrameType type, std::span<const std::byte> payload) {
  if (seal_ == nullptr) return payload;
  auto opened = seal_->Open(type, payload);
  if (opened) return *opened;
  FailHere(std::move(opened).error());
  return std::nullopt;
}

void FramedPairCore::SendMessage(std::span<const std::byte> message) {
  if (AddMessage(message)) Flush();
}

void FramedPairCore::SendMessageSoon(std::span<const std::byte> message) {
  if (AddMessage(message) && !write_blocked_) DeferDue();
}

void FramedPairCore::Send(Lane lane, std::vector<iovec> data, Completion done) {
  if (state_ != State::kOpen) {
    due_.push_back(DueDone(std::move(done), Fail(*end_)));
    DeferDue();
    return;
  }
  outbox_.AddSend(lane, std::move(data), std::move(done));
  if (!outbox_.status()) {
    FailHere(outbox_.status().error());
    return;
  }
  Flush();
}

void FramedPairCore::Recv(Lane lane, std::vector<iovec> into, PartialArrival on_bytes, Completion done) {
  // One that has left may have sent all that it owed: its last operations are over there, and shall be here, too.
  if (state_ != State::kOpen && !inbox_.HasForLate(lane, IovecCursor(into).left())) {
    due_.push_back(DueDone(std::move(done), Fail(*end_)));
    DeferDue();
    return;
  }
  auto there = inbox_.Post(lane, std::move(into), std::move(on_bytes), std::move(done));
  if (!there) {
    FailHere(std::move(there).error());
    return;
  }
  if (*there != nullptr) {
    AddDueBytes(*there);
    DeferDue();
  }
  Flush();
}

bool FramedPairCore::Poll() {
  if (in_handler_ || stream_ == nullptr || stream_->fd() >= 0) return false;
  // Calls from outside write what they can, now or in the loop's next turn, so else output waits only where the stream
  // was full.
  if (due_.empty() && !write_blocked_ && stream_->NothingToRead()) return false;
  const std::shared_ptr<FramedPairCore> self = shared_from_this();
  in_handler_ = true;
  const bool due = !due_.empty();
  if (due) RunDue();
  bool moved = ReadSome();
  moved |= WriteSome();
  RunDue();
  in_handler_ = false;
  if (!due_.empty()) DeferDue();
  return moved || due;
}

void FramedPairCore::OnReady() {
  const std::shared_ptr<FramedPairCore> self = shared_from_this();
  in_handler_ = true;
  RunDue();
  ReadSome();
  WriteSome();
  RunDue();
  in_handler_ = false;
  if (!due_.empty()) DeferDue();
  UpdateEvents();
}

bool FramedPairCore::ReadSome() {
  size_t bytes = 0;
  while (state_ == State::kOpen) {
    if (bytes >= kStepBytes) {
      // A stream with a buffer of its own may hold bytes that no event announces.
      if (stream_->fd() >= 0) loop_->Defer([self = shared_from_this()] { self->OnReady(); });
      return true;
    }
    const auto got = stream_->TryRead(inbox_.Targets());
    if (!got) {
      const bool cut = !inbox_.at_boundary();
      FailByPeer(Describe(got.error(), cut ? "lost in the middle of a frame" : "lost"));
      return true;
    }
    if (*got == 0) break;
    bytes += *got;
    flow_.received.Add(*got);
    inbox_.Filled(*got);
    while (state_ == State::kOpen) {
      auto event = inbox_.Next();
      if (!event) {
        FailHere(std::move(event).error());
        break;
      }
      if (event->kind == InboxEvent::kNothing) break;
      Dispatch(*event);
    }
    if (stream_ != nullptr && !stream_->MayHaveMore()) break;
  }
  if (state_ == State::kDraining) DrainReads();
  return bytes > 0;
}

void FramedPairCore::Dispatch(const InboxEvent& event) {
  switch (event.kind) {
    case InboxEvent::kMessage:
      if (const auto message = Opened(FrameType::kMessage, event.payload)) {
        // Held here, because the handler may destroy the pair.
        if (const auto handler = on_message_; *handler) (*handler)(*message);
      }
      return;
    case InboxEvent::kBytes:
      AddDueBytes(event.op);
      RunDue();
      return;
    case InboxEvent::kGrant:
      if (auto status = outbox_.OnGrant(event.lane, event.total); !status) FailHere(std::move(status).error());
      return;
    case InboxEvent::kCredit:
      if (auto status = outbox_.OnCredit(event.total); !status) FailHere(std::move(status).error());
      return;
    case InboxEvent::kFail:
      if (const auto why = Opened(FrameType::kFail, event.payload)) {
        FailByPeer({Code::kInternal,
                    fmt::format("rank {} ended the connection: {}", peer_,
                                std::string_view(reinterpret_cast<const char*>(why->data()), why->size())),
                    peer_});
      }
      return;
    case InboxEvent::kBye:
      FailByPeer({Code::kUnknown, fmt::format("rank {} closed the connection", peer_), peer_});
      return;
    case InboxEvent::kNothing:
      return;
  }
}

void FramedPairCore::AddDueBytes(const std::shared_ptr<RecvOp>& op) {
  DueCall call;
  const size_t received = op->received();
  if (op->on_bytes && received > 0) {
    call.progress = op;
    call.bytes = received;
  }
  if (received == op->total) call.done = std::exchange(op->done, nullptr);
  due_.push_back(std::move(call));
}

bool FramedPairCore::WriteSome() {
  size_t bytes = 0;
  while (stream_ != nullptr && bytes < kStepBytes) {
    const auto data = outbox_.Next();
    if (data.empty()) {
      const auto flushed = stream_->TryFlush();
      if (!flushed) {
        OnWriteError(flushed.error());
        return true;
      }
      write_blocked_ = !*flushed;
      if (write_blocked_) return bytes > 0;
      if (state_ == State::kDraining && !std::exchange(said_all_, true)) stream_->ShutdownWrite();
      return bytes > 0;
    }
    const auto took = stream_->TryWrite(data, outbox_.HasMore());
    if (!took) {
      OnWriteError(took.error());
      return true;
    }
    if (*took == 0) break;
    bytes += *took;
    flow_.sent.Add(*took);
    outbox_.Wrote(*took, &due_);
  }
  write_blocked_ = true;
  return bytes > 0;
}

void FramedPairCore::OnWriteError(const Error& error) {
  if (!in_handler_) {  // no place to call user code from: the loop, or Poll, meets the same error soon
    write_blocked_ = true;
    if (stream_->fd() >= 0) loop_->Defer([self = shared_from_this()] { self->OnReady(); });
    return;
  }
  // The peer may have said why before it went: look, and only then blame the connection.
  while (state_ == State::kOpen && ReadSome()) {
  }
  if (state_ == State::kOpen) FailByPeer(Describe(error, "lost"));
  if (state_ == State::kDraining) Release();
}

void FramedPairCore::DrainReads() {
  // Closing a socket with unread bytes would make the kernel destroy what the peer has not read yet.
  std::array<std::byte, 4096> scratch;
  const iovec into{scratch.data(), scratch.size()};
  for (size_t i = 0; i < kStepBytes / scratch.size(); ++i) {
    const auto got = stream_->TryRead(std::span(&into, 1));
    if (!got) {
      Release();
      return;
    }
    if (*got == 0) return;
  }
}

void FramedPairCore::UpdateEvents() {
  if (stream_ == nullptr || stream_->fd() < 0) return;
  const uint32_t wanted = stream_->WantedEvents(write_blocked_);
  if (wanted == watched_events_) return;
  watched_events_ = wanted;
  if (auto status = loop_->Rearm(stream_->fd(), wanted); !status && state_ == State::kOpen) {
    FailByPeer(Describe(status.error(), "lost"));
  }
}

void FramedPairCore::Flush() {
  // In a handler of ours one write at its end takes all; while blocked there is nothing to try.
  if (in_handler_ || write_blocked_) return;
  if (outbox_.OnlyPrepares()) return DeferDue();
  const std::shared_ptr<FramedPairCore> self = shared_from_this();
  WriteSome();
  if (!due_.empty()) DeferDue();
  UpdateEvents();
}

void FramedPairCore::RunDue() {
  // Only what is due now: calls that make further ones due must not hold the loop.
  for (size_t count = due_.size(); count > 0 && !due_.empty(); --count) {
    DueCall call = std::move(due_.front());
    due_.pop_front();
    if (call.progress != nullptr) call.progress->on_bytes(call.bytes);
    if (call.done) call.done(std::move(call.status));
  }
}

void FramedPairCore::DeferDue() {
  if (deferred_ || in_handler_) return;
  deferred_ = true;
  loop_->Defer([self = shared_from_this()] {
    self->deferred_ = false;
    const bool outer = std::exchange(self->in_handler_, true);
    self->RunDue();
    self->WriteSome();
    self->in_handler_ = outer;
    if (!self->due_.empty()) self->DeferDue();
    self->UpdateEvents();
  });
}

void FramedPairCore::EndOpen(Error error, bool tell_owner, bool by_peer) {
  error.rank = error.rank < 0 ? peer_ : error.rank;
  outbox_.AbortSends(error, &due_);
  inbox_.AbortRecvs(error, /*keep_arrivals=*/by_peer, &due_);
  if (tell_owner) {
    due_.push_back(DueDone(
        [self = shared_from_this(), error](const Status&) {
          if (const auto handler = std::exchange(self->on_closed_, nullptr)) handler(error);
        },
        {}));
  }
  end_ = std::move(error);
  if (!due_.empty()) DeferDue();
}

void FramedPairCore::FailByPeer(Error error) {
  EndOpen(std::move(error), /*tell_owner=*/true, /*by_peer=*/true);
  Release();
}

void FramedPairCore::FailHere(Error error) {
  const std::string reason = error.message;
  error.message = fmt::format("connection to rank {} failed: {}", peer_, error.message);
  state_ = State::kDraining;
  EndOpen(std::move(error), /*tell_owner=*/true, /*by_peer=*/false);
  const auto why = std::as_bytes(std::span(reason)).first(std::min(reason.size(), kMaxFailBytes));
  outbox_.AddFail(why, CodeOf(FrameType::kFail, why));
  StartDraining();
}

void FramedPairCore::Close() {
  if (state_ != State::kOpen) return;
  state_ = State::kDraining;
  EndOpen({Code::kAborted, fmt::format("the connection to rank {} was closed here", peer_)}, /*tell_owner=*/false,
          /*by_peer=*/false);
  outbox_.AddBye();
  StartDraining();
}

void FramedPairCore::StartDraining() {
  if (stream_->fd() >= 0) {
    drain_timer_ = loop_->At(loop_->Now() + kDrainTime, [self = shared_from_this()] {
      self->drain_timer_ = 0;
      self->Release();
    });
  }
  write_blocked_ = false;
  Flush();
}

void FramedPairCore::Detach() {
  Close();
  on_message_ = std::make_shared<MessageHandler>();
  on_closed_ = nullptr;
  if (stream_ != nullptr && stream_->fd() < 0) Release();
}

void FramedPairCore::Release() {
  state_ = State::kGone;
  if (drain_timer_ != 0) loop_->Cancel(std::exchange(drain_timer_, 0));
  if (stream_ == nullptr) return;
  if (stream_->fd() >= 0) {
    loop_->Unwatch(stream_->fd());
  } else {
    stream_->ShutdownWrite();
  }
  stream_ = nullptr;
}

Error FramedPairCore::Describe(const Error& error, std::string_view what) const {
  return {error.code, fmt::format("connection to rank {} {}: {}", peer_, what, error.message), peer_};
}

}  // namespace hvd::transport
