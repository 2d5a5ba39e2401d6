// SPDX-License-Identifier: Apache-2.0
#pragma once
// TLS 1.3 with an external pre-shared key from the job token and an ephemeral key exchange (psk_dhe_ke): both sides
// prove that they know the token, the bytes are encrypted, old traffic stays secret if the token leaks later; no
// certificates. A peer with another token, none, or a certificate instead fails the handshake with kPermissionDenied.
//
// Thread safety: a TlsContext may be shared; a TlsStream is used by one thread at a time.
// Lifetime: streams keep what they need of their context.

#include <memory>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/net/fd.h"
#include "hvd/net/stream.h"
#include "hvd/net/token.h"

struct ssl_ctx_st;
struct ssl_st;

namespace hvd::net {

enum class TlsSide { kClient, kServer };

class TlsContext {
 public:
  // `role` ("store", "data", ...) separates the keys of different services of one job.
  static Result<std::shared_ptr<TlsContext>> Create(TlsSide side, const Token& token, std::string_view role,
                                                    uint64_t generation);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  TlsSide side() const { return side_; }
  ssl_ctx_st* get() const { return context_; }
  const Key& key() const { return key_; }

 private:
  TlsContext(TlsSide side, ssl_ctx_st* context, const Key& key) : side_(side), context_(context), key_(key) {}
  TlsSide side_;
  ssl_ctx_st* context_;
  Key key_;
};

class TlsStream final : public Stream {
 public:
  static Result<std::unique_ptr<TlsStream>> Create(std::shared_ptr<TlsContext> context, Fd fd);
  ~TlsStream() override;

  int fd() const override { return fd_.get(); }
  Result<Want> TryHandshake() override;
  Result<Transfer> TryRead(MutableBytes into) override;
  Result<Transfer> TryWrite(Bytes data) override;

 private:
  TlsStream(std::shared_ptr<TlsContext> context, ssl_st* ssl, Fd fd)
      : context_(std::move(context)), ssl_(ssl), fd_(std::move(fd)) {}
  // Turns the failure of an SSL call into what the socket must become, an end, or an error.
  Result<Transfer> Explain(int returned, int saved_errno);

  std::shared_ptr<TlsContext> context_;
  ssl_st* ssl_;
  Fd fd_;
  bool ready_ = false;
};

}  // namespace hvd::net
