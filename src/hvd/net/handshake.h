// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a data connection opens: three messages of fixed size in which both ends prove that they know the job's key.
//
//   hello    connector -> acceptor   who I am, whom I want, a nonce
//   reply    acceptor -> connector   a nonce of its own, HMAC over (hello, nonce) as acceptor
//   confirm  connector -> acceptor   HMAC over (hello, nonce) as connector
//
// The key comes from token and generation, so that an old generation cannot join; each HMAC covers a nonce of the other
// side, so that nothing recorded can be replayed, and names its side, so that nothing can be reflected. The bytes after
// it are plain: this is for trusted nets, TLS is for others. The Connector and Acceptor classes are pure: they touch no
// socket, so the transport feeds them as bytes arrive.
//
// Thread safety: one thread at a time.

#include <array>
#include <cstdint>
#include <string>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/net/bytes.h"
#include "hvd/net/crypto.h"
#include "hvd/net/token.h"

namespace hvd::net::handshake {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kHelloBytes = 4 + 4 + 8 + 4 + 4 + 4 + 4 + kNonceBytes;  // 64
inline constexpr size_t kReplyBytes = kNonceBytes + 32;
inline constexpr size_t kConfirmBytes = 32;
using Nonce = std::array<uint8_t, kNonceBytes>;
using Hello = std::array<uint8_t, kHelloBytes>;
using Reply = std::array<uint8_t, kReplyBytes>;
using Confirm = std::array<uint8_t, kConfirmBytes>;

struct Identity {
  uint64_t generation = 0;
  uint32_t from = 0;     // rank that connects
  uint32_t to = 0;       // rank that it believes to reach
  uint32_t size = 0;     // number of ranks: both must agree
  uint32_t channel = 0;  // which of several connections of this pair
};

// Without a token (ranks of one user on one machine, or HOROVOD_INSECURE=1) the key is zeros: the exchange then guards
// against mix-ups only.
Result<Key> MakeKey(const Token* token, uint64_t generation);
Result<Nonce> MakeNonce();

// What is asked for by the bytes of a hello. Checks form alone; nothing in it is proven until the confirm.
Result<Identity> DecodeHello(Bytes hello);
Hello EncodeHello(const Identity& identity, const Nonce& nonce);

// A key that only the two ends of this connection have, once both have proven themselves; of another connection it is
// another.
Result<Key> SessionKey(const Key& key, Bytes hello, Bytes acceptor_nonce);

class Connector {
 public:
  Connector(const Key& key, const Identity& identity, const Nonce& nonce);
  const Hello& hello() const { return hello_; }
  // kPermissionDenied if the acceptor does not know the key.
  Result<Confirm> OnReply(Bytes reply) const;

 private:
  Key key_;
  Hello hello_;
};

class Acceptor {
 public:
  // `expected`: generation, own rank as `to`, and size; `from` and `channel` are the connector's to say.
  Acceptor(const Key& key, const Identity& expected, const Nonce& nonce);
  Result<Reply> OnHello(Bytes hello);
  // Who connected, now proven. kPermissionDenied if it does not know the key.
  Result<Identity> OnConfirm(Bytes confirm) const;

 private:
  Key key_;
  Identity expected_;
  Nonce nonce_;
  Hello hello_{};
  Identity asked_;
  bool have_hello_ = false;
};

// Blocking forms over a connected non-blocking socket.
Status Connect(int fd, const Key& key, const Identity& identity, Time deadline);
Result<Identity> Accept(int fd, const Key& key, const Identity& expected, Time deadline);

}  // namespace hvd::net::handshake
