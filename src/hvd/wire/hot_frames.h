// SPDX-License-Identifier: Apache-2.0
#pragma once
// The layout of the messages that are sent for every operation: a ready mark, and a head with marks and then all their
// data behind it. The magic stands where a FlatBuffer has the offset of its root table; as an offset it would point far
// outside any message of legal size, so the two cannot be confused.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "hvd/wire/control.h"

namespace hvd::wire {

inline constexpr uint32_t kReadyMagic = 0x52445648;  // "HVDR"
inline constexpr uint32_t kMarkMagic = 0x4d445648;   // "HVDM"
static_assert(kReadyMagic > kMaxControlBytes && kMarkMagic > kMaxControlBytes);
static_assert(std::endian::native == std::endian::little, "frames are little-endian and copied as they are");

struct ReadyFrame {
  uint32_t magic;
  int32_t set;
  uint64_t uid;
  int64_t first_dim;
  uint64_t reserved;  // 0
};
static_assert(sizeof(ReadyFrame) == kReadyBytes && std::is_trivially_copyable_v<ReadyFrame>);

struct MarkHead {
  uint32_t magic;
  int32_t set;
  uint64_t epoch;
  uint64_t position;
  uint64_t count;
};
static_assert(sizeof(MarkHead) == kMarkHeadBytes && std::is_trivially_copyable_v<MarkHead>);

struct MarkFrame {
  uint64_t uid;
  int64_t first_dim;
  uint64_t bytes;  // of its data
};
static_assert(sizeof(MarkFrame) == kMarkBytes && std::is_trivially_copyable_v<MarkFrame>);

}  // namespace hvd::wire
