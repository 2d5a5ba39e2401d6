// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/connection.h"

#include <sys/epoll.h>

#include <array>

namespace hvd::rendezvous::tcp {
namespace {

// At least one TLS record: what TLS has decrypted is then always taken out whole, and epoll tells of all the rest.
constexpr size_t kReadBytes = 32 << 10;
// Reads per call, so that one busy client does not keep the others waiting.
constexpr int kReadsPerAdvance = 8;
// The first byte of a TLS handshake.
constexpr char kTlsRecord = 0x16;

tl::unexpected<Error> Left() { return Fail(Code::kCancelled, "the client left"); }

}  // namespace

uint32_t Connection::interest() const {
  if (has_output() || want_ == net::Want::kWrite) return (want_ == net::Want::kRead ? EPOLLIN : EPOLLOUT) | EPOLLRDHUP;
  if (answer_owed_) return EPOLLRDHUP;
  return EPOLLIN | EPOLLRDHUP;
}

Status Connection::Advance(uint32_t epoll_events) {
  // While reading, the end of the stream is found by reading, after the goodbye that may precede it.
  const bool reading = !answer_owed_ && !has_output();
  if ((epoll_events & (EPOLLERR | EPOLLHUP)) != 0 && !reading) return Left();
  if ((epoll_events & EPOLLRDHUP) != 0 && !reading) return Left();
  if (state_ != State::kOpen) HVD_RETURN_IF_ERROR(Open());
  if (state_ == State::kOpen) HVD_RETURN_IF_ERROR(Serve());
  return {};
}

Status Connection::Open() {
  if (state_ == State::kHandshake) {
    HVD_ASSIGN_OR_RETURN(want_, stream_->TryHandshake());
    if (want_ != net::Want::kNothing) return {};
    state_ = State::kPreface;
  }
  return ReadPreface();
}

Status Connection::ReadPreface() {
  std::array<uint8_t, kPreface.size()> buffer;
  while (preface_.size() < kPreface.size()) {
    HVD_ASSIGN_OR_RETURN(const net::Transfer moved,
                         Noted(stream_->TryRead(net::MutableBytes(buffer).first(kPreface.size() - preface_.size()))));
    if (moved.bytes == 0) break;
    preface_.append(net::AsText(net::Bytes(buffer).first(moved.bytes)));
    // Compared as it comes: a stranger learns nothing by sending half of it.
    if (preface_[0] == kTlsRecord) {
      return Fail(Code::kPermissionDenied,
                  "the client has a job token and this store has none: set HOROVOD_TOKEN_FILE on every rank");
    }
    if (!kPreface.starts_with(preface_))
      return Fail(Code::kInvalidArgument, "the client does not speak the store protocol");
  }
  if (preface_.size() < kPreface.size()) return {};
  state_ = State::kOpen;
  output_ = kPreface;
  return {};
}

Status Connection::Serve() {
  for (int reads = 0;;) {
    HVD_RETURN_IF_ERROR(Flush());
    if (has_output() || answer_owed_) return {};
    HVD_ASSIGN_OR_RETURN(const std::optional<net::Bytes> body, input_.Next());
    if (!body) {
      // Only here, where all that was read has been used: what epoll will not tell again must not be left behind.
      if (reads++ == kReadsPerAdvance) return {};
      HVD_ASSIGN_OR_RETURN(const bool more, ReadSome());
      if (!more) return {};
      continue;
    }
    HVD_ASSIGN_OR_RETURN(Request request, DecodeRequest(*body));
    if (request.op == Op::kGoodbye) {
      said_goodbye_ = true;
      return Left();
    }
    answer_owed_ = true;
    on_request_(std::move(request));
  }
}

Result<bool> Connection::ReadSome() {
  std::array<uint8_t, kReadBytes> buffer;
  HVD_ASSIGN_OR_RETURN(const net::Transfer moved, Noted(stream_->TryRead(buffer)));
  input_.Append(net::Bytes(buffer).first(moved.bytes));
  return moved.bytes > 0;
}

void Connection::Respond(const Response& response) {
  if (!has_output()) {
    output_.clear();
    sent_ = 0;
  }
  output_ += Encode(response);
  answer_owed_ = false;
}

Status Connection::Flush() {
  while (has_output()) {
    HVD_ASSIGN_OR_RETURN(const net::Transfer moved, Noted(stream_->TryWrite(net::AsBytes(output_).subspan(sent_))));
    if (moved.bytes == 0) return {};
    sent_ += moved.bytes;
  }
  output_ = {};
  sent_ = 0;
  return {};
}

Result<net::Transfer> Connection::Noted(Result<net::Transfer> moved) {
  if (!moved) return moved;
  if (moved->end) return Left();
  want_ = moved->want;
  return moved;
}

}  // namespace hvd::rendezvous::tcp
