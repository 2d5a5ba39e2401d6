// SPDX-License-Identifier: Apache-2.0
#pragma once
// The few primitives that authentication needs, by OpenSSL (linked statically, its exit handlers and configuration file
// off).
//
// Thread safety: all functions may be called from any thread.

#include <array>
#include <cstdint>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/net/bytes.h"

namespace hvd::net {

using Digest = std::array<uint8_t, 32>;

void SecureZero(void* memory, size_t bytes);

// A 256-bit secret; its memory is zeroed when it goes.
struct Key {
  std::array<uint8_t, 32> bytes{};
  Key() = default;
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key() { SecureZero(bytes.data(), bytes.size()); }
};

// Initialises OpenSSL once; every function here and in tls.h calls it.
void InitCrypto();

Status RandomBytes(MutableBytes into);
// HKDF-SHA256. Different labels or generations give unrelated keys, so that a worker of an old generation cannot
// rejoin.
Result<Key> DeriveKey(Bytes secret, std::string_view label, uint64_t generation);
Result<Digest> HmacSha256(const Key& key, Bytes data);
Result<Digest> Sha256(Bytes data);
// Takes the same time wherever the first difference is.
bool ConstantTimeEqual(Bytes a, Bytes b);

std::string ToHex(Bytes bytes);

}  // namespace hvd::net
