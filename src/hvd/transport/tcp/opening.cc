// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/tcp/opening.h"

#include <utility>

#include "hvd/net/socket.h"
#include "hvd/transport/tcp/stream.h"

namespace hvd::transport::tcp {

using net::Want;

Result<std::unique_ptr<Opening>> Opening::Connect(const OpeningContext* context, Rank peer,
                                                  const net::Address& address) {
  std::unique_ptr<Opening> opening(new Opening(context, Phase::kConnect, peer, address));
  HVD_ASSIGN_OR_RETURN(const net::handshake::Nonce nonce, net::handshake::MakeNonce());
  net::handshake::Identity identity = context->self;
  identity.from = context->self.to;
  identity.to = static_cast<uint32_t>(peer);
  opening->connector_.emplace(context->key, identity, nonce);
  HVD_ASSIGN_OR_RETURN(net::Fd fd, net::StartConnect(address));
  HVD_RETURN_IF_ERROR(opening->SetStream(std::move(fd)));
  return opening;
}

Result<std::unique_ptr<Opening>> Opening::Accept(const OpeningContext* context, net::Fd fd) {
  HVD_ASSIGN_OR_RETURN(const net::Address from, net::PeerAddress(fd.get()));
  std::unique_ptr<Opening> opening(new Opening(context, Phase::kTls, -1, from));
  HVD_ASSIGN_OR_RETURN(const net::handshake::Nonce nonce, net::handshake::MakeNonce());
  opening->acceptor_.emplace(context->key, context->self, nonce);
  opening->nonce_ = nonce;
  HVD_RETURN_IF_ERROR(opening->SetStream(std::move(fd)));
  return opening;
}

Status Opening::SetStream(net::Fd fd) {
  const auto& tls = connector_ ? context_->tls_client : context_->tls_server;
  if (tls != nullptr) {
    HVD_ASSIGN_OR_RETURN(stream_, net::TlsStream::Create(tls, std::move(fd)));
  } else {
    plain_ = std::move(fd);
    stream_ = std::make_unique<net::BorrowedStream>(plain_.get());
  }
  return {};
}

Result<Want> Opening::Step() {
  if (phase_ == Phase::kConnect) {
    HVD_RETURN_IF_ERROR(net::FinishConnect(fd(), address_));
    phase_ = Phase::kTls;
  }
  if (phase_ == Phase::kTls) {
    HVD_ASSIGN_OR_RETURN(const Want want, stream_->TryHandshake());
    if (want != Want::kNothing) return want;
    if (connector_) {
      Write(connector_->hello());
    } else {
      Read(net::handshake::kHelloBytes);
    }
  }
  return Transfer();
}

void Opening::Write(net::Bytes bytes) {
  phase_ = Phase::kWrite;
  part_.assign(net::AsText(bytes));
  moved_ = 0;
}

void Opening::Read(size_t bytes) {
  phase_ = Phase::kRead;
  part_.assign(bytes, '\0');
  moved_ = 0;
}

Result<Want> Opening::Transfer() {
  while (phase_ != Phase::kOpen) {
    auto* rest = reinterpret_cast<uint8_t*>(part_.data()) + moved_;
    const size_t left = part_.size() - moved_;
    const bool writing = phase_ == Phase::kWrite;
    HVD_ASSIGN_OR_RETURN(const net::Transfer moved, writing ? stream_->TryWrite(net::Bytes(rest, left))
                                                            : stream_->TryRead(net::MutableBytes(rest, left)));
    if (moved.end) return Fail(Code::kUnknown, "the other side closed the connection");
    moved_ += moved.bytes;
    if (moved_ == part_.size()) {
      HVD_RETURN_IF_ERROR(writing ? OnWritten() : OnRead());
    } else if (moved.bytes == 0) {
      return moved.want;
    }
  }
  return Want::kNothing;
}

Status Opening::OnWritten() {
  if (connector_) {
    if (said_last_) {
      phase_ = Phase::kOpen;
    } else {
      Read(net::handshake::kReplyBytes);
    }
  } else {
    Read(net::handshake::kConfirmBytes);
    said_last_ = true;
  }
  return {};
}

Status Opening::OnRead() {
  const std::string part = std::move(part_);
  if (connector_) {
    HVD_ASSIGN_OR_RETURN(const net::handshake::Confirm confirm, connector_->OnReply(net::AsBytes(part)));
    const net::Bytes nonce = net::AsBytes(part).first(net::handshake::kNonceBytes);
    HVD_ASSIGN_OR_RETURN(session_, net::handshake::SessionKey(context_->key, connector_->hello(), nonce));
    Write(confirm);
    said_last_ = true;
    return {};
  }
  if (!said_last_) {
    HVD_ASSIGN_OR_RETURN(const net::handshake::Reply reply, acceptor_->OnHello(net::AsBytes(part)));
    HVD_ASSIGN_OR_RETURN(session_, net::handshake::SessionKey(context_->key, net::AsBytes(part), nonce_));
    Write(reply);
    return {};
  }
  HVD_ASSIGN_OR_RETURN(const net::handshake::Identity who, acceptor_->OnConfirm(net::AsBytes(part)));
  peer_ = static_cast<Rank>(who.from);
  phase_ = Phase::kOpen;
  return {};
}

Result<std::unique_ptr<Seal>> Opening::MakeSeal() const {
  if (!context_->has_token || context_->tls_client != nullptr) return std::unique_ptr<Seal>();
  return Seal::Create(session_, connects());
}

std::unique_ptr<ByteStream> Opening::TakeStream() {
  if (plain_) return CreateSocketStream(std::move(plain_));
  return CreateTlsByteStream(std::move(stream_));
}

}  // namespace hvd::transport::tcp
