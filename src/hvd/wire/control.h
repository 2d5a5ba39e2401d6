// SPDX-License-Identifier: Apache-2.0
#pragma once
// Control messages <-> bytes. Ready is a fixed struct of 32 bytes and so is a head of marks, with the marks and their
// data behind it, because they are sent for every operation; all others are FlatBuffers. Both ends are of the same
// generation of the same job, yet Decode trusts nothing: any bytes give a message within the limits of messages.h or
// kInvalidArgument, and never more memory than a small multiple of their number.
//
// Thread safety: pure functions.

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "hvd/wire/messages.h"

namespace hvd::wire {

using Bytes = std::vector<std::byte>;

inline constexpr size_t kReadyBytes = 32;
inline constexpr size_t kMarkHeadBytes = 32;
inline constexpr size_t kMarkBytes = 24;  // each, without its data

// Whether receivers will take it: name and shape within limits, enumerations known, byte count representable. Code
// kInvalidArgument, with a text that a user can act on.
Status Check(const Request& request);

Bytes Encode(const ControlMessage& message);
std::array<std::byte, kReadyBytes> EncodeReady(const ReadyMessage& ready);
// Into `bytes`, whose memory is used again.
void EncodeMarks(const MarkMessage& message, Bytes* bytes);

// Cuts a log into messages of at most max_bytes each (an entry within the limits always fits into kMaxControlBytes).
std::vector<Bytes> EncodeLog(const LogMessage& log, size_t max_bytes = kMaxControlBytes);

Result<ControlMessage> Decode(std::span<const std::byte> bytes);

}  // namespace hvd::wire
