// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Pair over any ByteStream. See frame.h for what travels.
//
// Data up to kEagerBytes is sent at once and kept by the receiver until it is asked for; larger data waits for the
// peer's Recv, so that unexpected data is bounded by kEagerWindow. Data goes from and to user buffers without a copy,
// but for what comes with a frame header in one read. A Send is complete when the stream has taken its bytes.
//
// Lifetime: the loop outlives the pair. After Close() or destruction what remains to be said to the peer is written by
// the loop as long as it turns, for a few seconds at most (descriptors), or as far as the stream takes it at once
// (polled streams). Completions of pending operations run in a later turn, also after destruction.

#include <memory>

#include "hvd/base/result.h"
#include "hvd/loop/loop.h"
#include "hvd/transport/byte_stream.h"
#include "hvd/transport/pair.h"
#include "hvd/transport/seal.h"

namespace hvd::transport {

// `seal`: authenticates control messages; nullptr where the stream itself cannot be changed by others.
Result<std::unique_ptr<Pair>> CreateFramedPair(Rank peer, std::unique_ptr<ByteStream> stream, loop::Loop* loop,
                                               std::unique_ptr<Seal> seal = nullptr);

}  // namespace hvd::transport
