// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/handshake.h"

#include <algorithm>
#include <string_view>

#include "hvd/net/socket.h"

namespace hvd::net::handshake {
namespace {

constexpr uint32_t kMagic = 0x48445648;  // "HVDH"
constexpr uint32_t kVersion = 1;

Result<Digest> Prove(const Key& key, std::string_view side, const Hello& hello, Bytes nonce) {
  std::string text(side);
  text.append(AsText(hello));
  text.append(AsText(nonce));
  return HmacSha256(key, AsBytes(text));
}

Result<Digest> ProveAsAcceptor(const Key& key, const Hello& hello, Bytes nonce) {
  return Prove(key, "hvd data acceptor  ", hello, nonce);
}
Result<Digest> ProveAsConnector(const Key& key, const Hello& hello, Bytes nonce) {
  return Prove(key, "hvd data connector ", hello, nonce);
}

}  // namespace

Result<Key> MakeKey(const Token* token, uint64_t generation) {
  if (token == nullptr) return Key{};
  return DeriveKey(token->bytes(), "data handshake", generation);
}

Result<Nonce> MakeNonce() {
  Nonce nonce;
  HVD_RETURN_IF_ERROR(RandomBytes(nonce));
  return nonce;
}

Hello EncodeHello(const Identity& identity, const Nonce& nonce) {
  std::string bytes;
  ByteWriter writer(&bytes);
  writer.Put(kMagic);
  writer.Put(kVersion);
  writer.Put(identity.generation);
  writer.Put(identity.from);
  writer.Put(identity.to);
  writer.Put(identity.size);
  writer.Put(identity.channel);
  writer.PutBytes(AsText(nonce));
  Hello hello;
  std::copy(bytes.begin(), bytes.end(), hello.begin());
  return hello;
}

Result<Identity> DecodeHello(Bytes hello) {
  ByteReader reader(hello);
  const auto magic = reader.Get<uint32_t>();
  const auto version = reader.Get<uint32_t>();
  Identity identity;
  identity.generation = reader.Get<uint64_t>();
  identity.from = reader.Get<uint32_t>();
  identity.to = reader.Get<uint32_t>();
  identity.size = reader.Get<uint32_t>();
  identity.channel = reader.Get<uint32_t>();
  reader.GetBytes(kNonceBytes);
  if (!reader.Complete() || magic != kMagic) return Fail(Code::kInvalidArgument, "no hvd data connection");
  if (version != kVersion) {
    return Fail(Code::kFailedPrecondition, "the peer speaks version {} of the data protocol, this process {}", version,
                kVersion);
  }
  if (identity.from >= identity.size || identity.to >= identity.size) {
    return Fail(Code::kInvalidArgument, "hello from rank {} to rank {} of {}", identity.from, identity.to,
                identity.size);
  }
  return identity;
}

Result<Key> SessionKey(const Key& key, Bytes hello, Bytes acceptor_nonce) {
  std::string text = "hvd session";
  text += AsText(hello);
  text += AsText(acceptor_nonce);
  Key session;
  HVD_ASSIGN_OR_RETURN(session.bytes, HmacSha256(key, AsBytes(text)));
  return session;
}

Connector::Connector(const Key& key, const Identity& identity, const Nonce& nonce)
    : key_(key), hello_(EncodeHello(identity, nonce)) {}

Result<Confirm> Connector::OnReply(Bytes reply) const {
  if (reply.size() != kReplyBytes) return Fail(Code::kInvalidArgument, "reply of {} bytes", reply.size());
  const Bytes nonce = reply.first(kNonceBytes);
  HVD_ASSIGN_OR_RETURN(const Digest wanted, ProveAsAcceptor(key_, hello_, nonce));
  if (!ConstantTimeEqual(wanted, reply.subspan(kNonceBytes))) {
    return Fail(Code::kPermissionDenied, "the peer has another job token or generation");
  }
  return ProveAsConnector(key_, hello_, nonce);
}

Acceptor::Acceptor(const Key& key, const Identity& expected, const Nonce& nonce)
    : key_(key), expected_(expected), nonce_(nonce) {}

Result<Reply> Acceptor::OnHello(Bytes hello) {
  HVD_ASSIGN_OR_RETURN(asked_, DecodeHello(hello));
  if (asked_.generation != expected_.generation) {
    return Fail(Code::kFailedPrecondition, "rank {} is of generation {}, this process of {}", asked_.from,
                asked_.generation, expected_.generation);
  }
  if (asked_.to != expected_.to || asked_.size != expected_.size) {
    return Fail(Code::kFailedPrecondition, "rank {} of {} looks for rank {}, this is rank {} of {}", asked_.from,
                asked_.size, asked_.to, expected_.to, expected_.size);
  }
  std::copy(hello.begin(), hello.end(), hello_.begin());
  have_hello_ = true;
  HVD_ASSIGN_OR_RETURN(const Digest proof, ProveAsAcceptor(key_, hello_, nonce_));
  Reply reply;
  std::copy(nonce_.begin(), nonce_.end(), reply.begin());
  std::copy(proof.begin(), proof.end(), reply.begin() + kNonceBytes);
  return reply;
}

Result<Identity> Acceptor::OnConfirm(Bytes confirm) const {
  if (!have_hello_) return Fail(Code::kInvalidArgument, "confirm before hello");
  HVD_ASSIGN_OR_RETURN(const Digest wanted, ProveAsConnector(key_, hello_, nonce_));
  if (!ConstantTimeEqual(wanted, confirm)) {
    return Fail(Code::kPermissionDenied, "a peer that says to be rank {} does not know the job token", asked_.from);
  }
  return asked_;
}

Status Connect(int fd, const Key& key, const Identity& identity, Time deadline) {
  HVD_ASSIGN_OR_RETURN(const Nonce nonce, MakeNonce());
  const Connector connector(key, identity, nonce);
  HVD_RETURN_IF_ERROR(WriteFull(fd, connector.hello(), deadline));
  Reply reply;
  HVD_RETURN_IF_ERROR(ReadFull(fd, reply, deadline));
  HVD_ASSIGN_OR_RETURN(const Confirm confirm, connector.OnReply(reply));
  return WriteFull(fd, confirm, deadline);
}

Result<Identity> Accept(int fd, const Key& key, const Identity& expected, Time deadline) {
  HVD_ASSIGN_OR_RETURN(const Nonce nonce, MakeNonce());
  Acceptor acceptor(key, expected, nonce);
  Hello hello;
  HVD_RETURN_IF_ERROR(ReadFull(fd, hello, deadline));
  HVD_ASSIGN_OR_RETURN(const Reply reply, acceptor.OnHello(hello));
  HVD_RETURN_IF_ERROR(WriteFull(fd, reply, deadline));
  Confirm confirm;
  HVD_RETURN_IF_ERROR(ReadFull(fd, confirm, deadline));
  return acceptor.OnConfirm(confirm);
}

}  // namespace hvd::net::handshake
