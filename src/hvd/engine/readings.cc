// SPDX-License-Identifier: Apache-2.0
// What the counters say, with the bytes of every connection.
#include "hvd/engine/engine.h"

namespace hvd::engine {

trace::Readings Engine::ReadCounters() const {
  trace::Readings readings = recorder_.Read();
  readings.fusion_threshold = static_cast<uint64_t>(fusion_threshold_.load(std::memory_order_relaxed));
  for (trace::Readings::Peer& peer : readings.peers) {
    if (peer.rank == world_.layout.rank) continue;
    if (world_.window != nullptr && world_.layout.LocalOf(peer.rank) >= 0) {
      const Flow& shm = counters().peers[peer.rank].shm;
      peer.ways.push_back({"shm", shm.sent.load(), shm.received.load()});
    }
    if (world_.pairs.empty() || world_.pairs[peer.rank] == nullptr) continue;
    const Flow& flow = world_.pairs[peer.rank]->flow();
    peer.ways.push_back({ReachedByRing(peer.rank) ? "ring" : "tcp", flow.sent.load(), flow.received.load()});
  }
  return readings;
}

}  // namespace hvd::engine
