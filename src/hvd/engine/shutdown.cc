// SPDX-License-Identifier: Apache-2.0
// How an engine ends: its thread first, then its operations, then its connections.
#include <sched.h>
#include <unistd.h>

#include "hvd/engine/engine.h"

namespace hvd::engine {

using transport::PeerState;

void Engine::Shutdown() {
  if (!membership_.BeginShutdown()) return;
  // In the middle of other callers' waits: they see it through their operations' errors.
  token_.Claim();
  scheduler_.Stop();
  const Time limit = world_.loop->Now() + Seconds(2);
  bool taken = false;
  while (!(taken = token_.TryTake()) && world_.loop->Now() < limit) {
    world_.loop->Wake();
    usleep(1000);
  }
  token_.Yield();
  if (!taken) return;
  Leave(limit);
  token_.Return();
}

void Engine::Leave(Time limit) {
  operations_.DrainInbox();
  const Error error{Code::kUnknown, "Horovod has been shut down: hvd.shutdown() was called on this rank"};
  membership_.BeginLeaving(operations_.pending() > 0);
  while (membership_.phase() == Membership::Phase::kRevoking &&
         world_.loop->Now() < limit + Seconds(options_.config.heartbeat_timeout_s)) {
    progress_.Progress();
    sched_yield();
  }
  for (const auto& set : sets_) set->SendStreamEnd();
  membership_.SendGoodbyes();
  control_.CloseAll();
  for (const auto& set : sets_) set->FailAll(error);
  operations_.DrainInbox();
  DrainConnections();
  membership_.LeaveWindow();
}

// Closed connections drain while a thread runs the loop, and rings while it polls them; without that what peers still
// need would be dropped.
void Engine::DrainConnections() {
  const Time limit = world_.loop->Now() + Seconds(2);
  for (bool rings = true; rings || world_.loop->watched() > 0;) {
    rings = false;
    for (transport::Pair* pair : world_.polled) {
      pair->Poll();
      const int local = world_.layout.LocalOf(pair->peer());
      rings |= pair->IsSayingMore() && world_.window->peer_state(local) == PeerState::kAlive;
    }
    if (world_.loop->Now() >= limit) break;
    if (rings || world_.loop->watched() > 0) world_.loop->RunOnce(std::chrono::milliseconds(rings ? 1 : 10));
  }
}

}  // namespace hvd::engine
