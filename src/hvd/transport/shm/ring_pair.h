// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Pair over two rings, one for each direction; see ring.h for their memory. Serves ranks of one host (rings in the
// control segment) and ranks of one process (rings on the heap).
//
// The pair has no descriptor: its owner calls Poll() whenever it looks at shared memory, and before it sleeps. Whoever
// rings this side's doorbell wakes its loop; this side rings the peer's by `ring_doorbell`, after every write and after
// a read that made room for a writer that waits.

#include <functional>
#include <memory>
#include <span>

#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/loop/loop.h"
#include "hvd/transport/pair.h"

namespace hvd::transport::shm {

// Lifetime: the memory and what ring_doorbell uses outlive the pair.
Result<std::unique_ptr<Pair>> CreateRingPair(Rank peer, std::span<std::byte> outgoing, std::span<std::byte> incoming,
                                             std::function<void()> ring_doorbell, loop::Loop* loop);

}  // namespace hvd::transport::shm
