// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>

#include <memory>

namespace hvd::net {

void SecureZero(void* memory, size_t bytes) { OPENSSL_cleanse(memory, bytes); }

void InitCrypto() {
  // No exit handler: other threads may still use a connection while the process exits. No configuration file: the host
  // program's settings are not ours.
  static const int done = OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  (void)done;
}

Status RandomBytes(MutableBytes into) {
  InitCrypto();
  if (RAND_bytes(into.data(), static_cast<int>(into.size())) == 1) return {};
  return Fail(Code::kInternal, "the system gave no random bytes");
}

Result<Key> DeriveKey(Bytes secret, std::string_view label, uint64_t generation) {
  InitCrypto();
  std::string info;
  ByteWriter writer(&info);
  writer.PutBytes("hvd key 1 ");
  writer.Put<uint16_t>(label.size());
  writer.PutBytes(label);
  writer.Put<uint64_t>(generation);

  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr), &EVP_KDF_free);
  if (!kdf) return Fail(Code::kInternal, "OpenSSL has no HKDF");
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(EVP_KDF_CTX_new(kdf.get()),
                                                                          &EVP_KDF_CTX_free);
  char digest[] = "SHA256";
  OSSL_PARAM params[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<uint8_t*>(secret.data()), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_construct_end(),
  };
  Key key;
  if (!context || EVP_KDF_derive(context.get(), key.bytes.data(), key.bytes.size(), params) != 1) {
    return Fail(Code::kInternal, "a key could not be derived");
  }
  return key;
}

Result<Digest> HmacSha256(const Key& key, Bytes data) {
  InitCrypto();
  Digest digest;
  unsigned length = 0;
  if (HMAC(EVP_sha256(), key.bytes.data(), static_cast<int>(key.bytes.size()), data.data(), data.size(), digest.data(),
           &length) == nullptr ||
      length != digest.size()) {
    return Fail(Code::kInternal, "HMAC-SHA256 failed");
  }
  return digest;
}

Result<Digest> Sha256(Bytes data) {
  InitCrypto();
  Digest digest;
  if (EVP_Digest(data.data(), data.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1) return digest;
  return Fail(Code::kInternal, "SHA-256 failed");
}

bool ConstantTimeEqual(Bytes a, Bytes b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string ToHex(Bytes bytes) {
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const uint8_t byte : bytes) {
    hex.push_back("0123456789abcdef"[byte >> 4]);
    hex.push_back("0123456789abcdef"[byte & 15]);
  }
  return hex;
}

}  // namespace hvd::net
