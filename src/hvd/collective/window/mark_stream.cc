// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/mark_stream.h"

namespace hvd::collective::window {

// Payloads of consecutive slots start on different cache sets: a power-of-two stride would map them all to the same
// ones.
constexpr size_t kStagger = 128;

size_t MarkStream::Bytes(int members, size_t payload_bytes) {
  return MarkStream(nullptr, members, 0, payload_bytes).member_bytes_ * members;
}

MarkStream::MarkStream(std::byte* memory, int members, int me, size_t payload_bytes)
    : memory_(memory), members_(members), me_(me), payload_bytes_(payload_bytes) {
  slot_bytes_ = kSlotHead + (payload_bytes + 127) / 128 * 128 + kStagger;
  member_bytes_ = kMemberHead + slot_bytes_ * kSlots;
}

}  // namespace hvd::collective::window
