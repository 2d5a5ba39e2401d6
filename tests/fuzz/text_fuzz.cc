// SPDX-License-Identifier: Apache-2.0
// Texts that come from users and from the store: addresses, tokens, cards. What is accepted survives another round.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "hvd/engine/bootstrap/rank_descriptor.h"
#include "hvd/net/address.h"
#include "hvd/net/token.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto where = hvd::net::ParseHostPort(text, 1)) {
    const auto again = hvd::net::ParseHostPort(ToString(*where));
    if (!again || again->host != where->host || again->port != where->port) std::abort();
  }
  (void)hvd::net::Token::FromHex(text);
  if (const auto card = hvd::engine::bootstrap::DecodeRankDescriptor(text)) {
    const auto again = hvd::engine::bootstrap::DecodeRankDescriptor(Encode(*card));
    if (!again || Encode(*again) != Encode(*card)) std::abort();
  }
  return 0;
}
