// SPDX-License-Identifier: Apache-2.0
// What local ranks send each other before they share memory: any packet is refused or gives a message of its own kind.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "hvd/transport/shm/handshake.h"

namespace {

using namespace hvd::transport::shm;

template <typename Message>
void Check(const Packet& packet) {
  const auto message = Parse<Message>(packet);
  if (message && (message->header.kind != Message::kKind || message->header.magic != Header().magic)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Packet packet;
  packet.bytes.assign(reinterpret_cast<const std::byte*>(data), reinterpret_cast<const std::byte*>(data) + size);
  Check<Hello>(packet);
  Check<Proof>(packet);
  Check<Join>(packet);
  Check<Welcome>(packet);
  Check<Roster>(packet);
  return 0;
}
