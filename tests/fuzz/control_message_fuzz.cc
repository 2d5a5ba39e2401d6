// SPDX-License-Identifier: Apache-2.0
// Any bytes: Decode refuses them or gives a message that survives another round.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "hvd/wire/control.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::span(reinterpret_cast<const std::byte*>(data), size);
  const auto message = hvd::wire::Decode(bytes);
  if (!message) {
    if (message.error().code != hvd::Code::kInvalidArgument) std::abort();
    return 0;
  }
  const hvd::wire::Bytes encoded = hvd::wire::Encode(*message);
  if (encoded.size() > hvd::wire::kMaxControlBytes)
    return 0;  // shared or left-out parts take room when written in full
  const auto again = hvd::wire::Decode(encoded);
  if (!again || hvd::wire::Encode(*again) != encoded) std::abort();
  return 0;
}
