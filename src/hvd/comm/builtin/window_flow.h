// SPDX-License-Identifier: Apache-2.0
#pragma once
// How many bytes an operation moves between this member and each of the others through shared memory. What one reads of
// the other's input counts, and what one stores into the other's result.
//
// Thread safety: call with the progress token.

#include <span>

#include "hvd/base/monotonic_counter.h"
#include "hvd/comm/communicator.h"

namespace hvd::comm::builtin {

// Adds what `work` moves. `chunk_bytes`: of an allreduce of which every member does a slice; 0: everybody does it all.
void CountFlow(const Work& work, int me, size_t chunk_bytes, std::span<PeerByteCounts* const> flows);

// Of an allreduce whose chunks are cut into slices for the first `owners` members, who reduce them for all.
void CountReduceFlow(const Work& work, int me, size_t chunk_bytes, int owners, std::span<PeerByteCounts* const> flows);

}  // namespace hvd::comm::builtin
