// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/engine_progress.h"

#include <algorithm>

namespace hvd::engine {

bool EngineProgress::Progress() {
  World& world = *context_.world;
  Membership& membership = *context_.membership;
  SetTable& sets = *context_.sets;
  const auto& completed = context_.recorder->counters().operations;
  if (world.window != nullptr) world.window->Beat();
  const uint64_t completed_before = completed.load(std::memory_order_relaxed);
  bool moved = operations_->DrainInbox();
  if (operations_->batcher().holding()) operations_->batcher().Flush();
  changes_->Reclaim();
  for (transport::Pair* pair : world.polled) moved |= pair->Poll();
  moved |= world.loop->RunOnce(Duration::zero());
  membership.NoticeChanges();
  if (!membership.working()) return membership.FinishRevocation(operations_->pending() > 0) || moved;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].busy()) moved |= sets[i].Step();
    if (!membership.working()) return true;
    moved |= sets[i].FlushLog();
  }
  if (operations_->has_deadlines()) moved |= operations_->Expire(world.loop->Now(), stalls_);
  if (moved) context_.recorder->Cycle();
  return moved || completed.load(std::memory_order_relaxed) != completed_before;
}

Time EngineProgress::NextEvent(Time now) {
  Time next = std::min({liveness_->Check(now), stalls_->Check(now), operations_->NextExpiry(now)});
  if (context_.membership->phase() == Membership::Phase::kRevoking) {
    next = std::min(next, now + std::chrono::milliseconds(1));
  }
  return next;
}

}  // namespace hvd::engine
