// SPDX-License-Identifier: Apache-2.0
#pragma once
// The header in front of everything that a framed pair writes. Fixed 24 bytes, little-endian:
//
//   0  u16 magic    4  u32 length   payload bytes that follow
//   2  u8  type     8  u64 lane     0 where the type has none
//   3  u8  zero    16  u64 total    bytes of the whole operation, or what the type says

#include <cstddef>
#include <cstdint>
#include <span>

#include "hvd/base/result.h"
#include "hvd/transport/pair.h"

namespace hvd::transport {

enum class FrameType : uint8_t {
  kMessage = 1,   // a control message; total = length. Like kFail with a code of kSealBytes at its end, see seal.h
  kEager = 2,     // a whole small Send; total = length
  kAnnounce = 3,  // a Send of `total` bytes exists; its data waits for a grant
  kGrant = 4,     // a Recv of `total` bytes is posted: send its data
  kData = 5,      // the next bytes of a granted Send of `total` bytes
  kCredit = 6,    // `total` of the eager window were given back
  kFail = 7,      // the sender gives up, the payload says why
  kBye = 8,       // the sender closed on purpose
};

inline constexpr size_t kFrameHeaderBytes = 24;
// Sends up to this size travel before they are asked for.
inline constexpr size_t kEagerBytes = 64 << 10;
// Larger data is cut into frames of this size, so that lanes can take turns.
inline constexpr size_t kMaxDataBytes = 256 << 10;
inline constexpr size_t kMaxFailBytes = 1024;
// The authentication code of a control message, where the connection has one.
inline constexpr size_t kSealBytes = 16;
// Eager data that the receiver may have to keep because no Recv is posted, per pair. A sender without window left
// announces small data too.
inline constexpr size_t kEagerWindow = 8 << 20;
// What an eager Send takes of the window: its record counts too. Empty ones are free, for an announced Send needs data.
inline constexpr size_t EagerCost(size_t total) { return total == 0 ? 0 : total + 64; }

struct FrameHeader {
  FrameType type;
  uint32_t length = 0;
  uint64_t lane = 0;
  uint64_t total = 0;
};

void EncodeFrameHeader(const FrameHeader& header, std::span<std::byte, kFrameHeaderBytes> out);
// kInternal for bytes that no encoder makes, including fields that do not fit the type.
Result<FrameHeader> DecodeFrameHeader(std::span<const std::byte, kFrameHeaderBytes> in);

}  // namespace hvd::transport
