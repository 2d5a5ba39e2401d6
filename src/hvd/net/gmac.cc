// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/gmac.h"

#include <openssl/evp.h>

#include <climits>

namespace hvd::net {

void Gmac::Free::operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }

Result<Gmac> Gmac::Create(const Key& key) {
  InitCrypto();
  std::unique_ptr<EVP_CIPHER_CTX, Free> context(EVP_CIPHER_CTX_new());
  if (!context || EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, key.bytes.data(), nullptr) != 1) {
    return Fail(Code::kInternal, "OpenSSL has no AES-256-GCM");
  }
  return Gmac(std::move(context));
}

Result<Gmac::Tag> Gmac::Make(uint64_t number, uint8_t kind, Bytes data) {
  std::array<uint8_t, 12> nonce{};
  for (size_t i = 0; i < sizeof number; ++i) nonce[i] = static_cast<uint8_t>(number >> (8 * i));
  EVP_CIPHER_CTX* const context = context_.get();
  Tag tag;
  int length = 0;
  const bool good =
      data.size() <= INT_MAX && EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, nonce.data()) == 1 &&
      EVP_EncryptUpdate(context, nullptr, &length, &kind, 1) == 1 &&
      (data.empty() || EVP_EncryptUpdate(context, nullptr, &length, data.data(), static_cast<int>(data.size())) == 1) &&
      EVP_EncryptFinal_ex(context, tag.data(), &length) == 1 &&
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, kBytes, tag.data()) == 1;
  if (!good) return Fail(Code::kInternal, "AES-256-GMAC failed");
  return tag;
}

}  // namespace hvd::net
