// SPDX-License-Identifier: Apache-2.0
#pragma once
// Authentication codes of messages that follow each other: AES-256-GMAC by OpenSSL, with the number of the message as
// its nonce. A message that is changed, left out, repeated or moved has another code.
//
// Thread safety: one thread at a time.

#include <array>
#include <cstdint>
#include <memory>

#include "hvd/base/result.h"
#include "hvd/net/bytes.h"
#include "hvd/net/crypto.h"

struct evp_cipher_ctx_st;

namespace hvd::net {

class Gmac {
 public:
  static constexpr size_t kBytes = 16;
  using Tag = std::array<uint8_t, kBytes>;

  // `key` is for one direction of one connection: no two messages may have the same number under it.
  static Result<Gmac> Create(const Key& key);

  // Returns the code of message `number`, which consists of a kind and data.
  Result<Tag> Make(uint64_t number, uint8_t kind, Bytes data);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  explicit Gmac(std::unique_ptr<evp_cipher_ctx_st, Free> context) : context_(std::move(context)) {}

  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace hvd::net
