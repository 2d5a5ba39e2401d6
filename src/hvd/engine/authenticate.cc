// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "hvd/engine/engine.h"
#include "hvd/net/crypto.h"

namespace hvd::engine {

Result<std::array<uint8_t, 32>> Engine::Authenticate(std::span<const std::byte> purpose,
                                                     std::span<const std::byte> data) const {
  std::array<uint8_t, 32> code{};
  if (!world_.object_key) return code;
  // A key for each purpose, so that a long payload need not be copied behind it.
  HVD_ASSIGN_OR_RETURN(
      const net::Digest derived,
      net::HmacSha256(*world_.object_key, {reinterpret_cast<const uint8_t*>(purpose.data()), purpose.size()}));
  net::Key key;
  key.bytes = derived;
  HVD_ASSIGN_OR_RETURN(code, net::HmacSha256(key, {reinterpret_cast<const uint8_t*>(data.data()), data.size()}));
  return code;
}

}  // namespace hvd::engine
