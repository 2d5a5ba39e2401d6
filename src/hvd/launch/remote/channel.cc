// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/remote/channel.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>

#include "hvd/net/deadline.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

constexpr Duration kBeat = std::chrono::seconds(1);
// Reads per event, so that one busy host does not keep the others waiting. Each takes a whole TLS record.
constexpr int kReadsAtOnce = 16;
constexpr size_t kReadBytes = 32 << 10;
constexpr size_t kLengthBytes = 4;

}  // namespace

Channel::Channel(std::unique_ptr<net::Stream> stream, Duration silence, loop::Loop* loop, Handlers handlers)
    : stream_(std::move(stream)), silence_(silence), loop_(loop), handlers_(std::move(handlers)) {}

Channel::~Channel() {
  if (timer_) loop_->Cancel(*timer_);
  if (!over_) loop_->Unwatch(stream_->fd());
}

Status Channel::Start() {
  heard_ = beat_ = loop_->Now();
  timer_ = loop_->At(beat_ + kBeat, [this] { OnBeat(); });
  HVD_RETURN_IF_ERROR(loop_->Watch(stream_->fd(), EPOLLIN, [this](uint32_t) { Advance(); }));
  // Not now: the caller may not be ready for what it has to say.
  Later();
  return {};
}

void Channel::Later() {
  loop_->Defer([this, alive = std::weak_ptr<int>(alive_)] {
    if (!alive.expired()) Advance();
  });
}

void Channel::Send(const Message& message) {
  if (over_) return;
  if (unsent() == 0) {
    output_.clear();
    sent_ = 0;
  }
  output_ += Encode(message);
  sent_since_beat_ = true;
  if (open_) {
    if (auto moved = TrySend(); !moved) return End(moved.error());
  }
  if (unsent() >= kMuchUnsent) stuffed_ = true;
  Rearm();
}

void Channel::Advance() {
  if (over_) return;
  if (!open_) {
    const auto want = stream_->TryHandshake();
    if (!want) return End(want.error());
    want_ = *want;
    open_ = want_ == net::Want::kNothing;
    if (!open_) return Rearm();
  }
  Status moved = TrySend();
  if (moved) moved = Receive();
  if (!moved) return End(moved.error());
  if (over_) return;
  if (stuffed_ && unsent() < kMuchUnsent) {
    stuffed_ = false;
    if (handlers_.on_drained) handlers_.on_drained();
  }
  Rearm();
}

Status Channel::Receive() {
  std::array<uint8_t, kReadBytes> buffer;
  for (int reads = 0; reads < kReadsAtOnce && !over_; ++reads) {
    HVD_ASSIGN_OR_RETURN(const net::Transfer moved, stream_->TryRead(buffer));
    if (moved.bytes > 0) {
      heard_ = loop_->Now();
      input_.append(net::AsText(net::Bytes(buffer).first(moved.bytes)));
      HVD_RETURN_IF_ERROR(CutMessages());
    }
    if (moved.end) return Fail(Code::kCancelled, "it closed the connection");
    if (moved.bytes == 0) return {};
  }
  // TLS may hold what epoll does not tell of.
  if (!over_) Later();
  return {};
}

Status Channel::CutMessages() {
  size_t start = 0;
  while (!over_ && input_.size() - start >= kLengthBytes) {
    const net::Bytes rest = net::AsBytes(input_).subspan(start);
    const size_t length = net::ByteReader(rest).Get<uint32_t>();
    if (length == 0 || length > kMostMessageBytes) {
      return Fail(Code::kInvalidArgument, "it sent a message of {} bytes", length);
    }
    if (rest.size() < kLengthBytes + length) break;
    HVD_ASSIGN_OR_RETURN(Message message, DecodeMessage(rest.subspan(kLengthBytes, length)));
    start += kLengthBytes + length;
    if (message.kind != Kind::kBeat) handlers_.on_message(std::move(message));
  }
  input_.erase(0, start);
  return {};
}

Status Channel::TrySend() {
  while (unsent() > 0) {
    HVD_ASSIGN_OR_RETURN(const net::Transfer moved, stream_->TryWrite(net::AsBytes(output_).subspan(sent_)));
    // That it is gone is found by reading, after its last words.
    if (moved.end) sent_ = output_.size();
    if (moved.bytes == 0) return {};
    sent_ += moved.bytes;
  }
  return {};
}

void Channel::Flush(Duration patience) {
  const Time deadline = net::DeadlineAfter(patience);
  while (!over_ && open_ && unsent() > 0) {
    if (!TrySend()) return;
    if (unsent() > 0 && !net::WaitFor(stream_->fd(), POLLOUT, deadline)) return;
  }
}

void Channel::Rearm() {
  if (over_) return;
  uint32_t events = EPOLLIN;
  if (open_ ? unsent() > 0 : want_ == net::Want::kWrite) events |= EPOLLOUT;
  (void)loop_->Rearm(stream_->fd(), events);
}

void Channel::Close() {
  if (std::exchange(over_, true)) return;
  loop_->Unwatch(stream_->fd());
  if (timer_) loop_->Cancel(*timer_);
  timer_.reset();
  ::shutdown(stream_->fd(), SHUT_RDWR);
}

void Channel::End(const Error& error) {
  if (over_) return;
  Close();
  handlers_.on_end(error);
}

void Channel::OnBeat() {
  timer_.reset();
  const Time now = loop_->Now();
  // Whoever did not run itself cannot tell whether the other did.
  if (now - beat_ > 2 * kBeat) heard_ = now;
  beat_ = now;
  if (silence_ > Duration::zero() && now - heard_ > silence_) {
    return End({Code::kDeadlineExceeded, fmt::format("it did not respond for {:.3g} s", net::InSeconds(silence_))});
  }
  if (!std::exchange(sent_since_beat_, false) && open_) {
    Send({.kind = Kind::kBeat});
    sent_since_beat_ = false;
  }
  if (!over_) timer_ = loop_->At(now + kBeat, [this] { OnBeat(); });
}

}  // namespace hvd::launch
