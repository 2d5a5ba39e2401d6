// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/liveness.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>

#include "hvd/engine/engine.h"

namespace hvd::engine {

Time Liveness::Check(Time now) {
  const auto& config = engine_->options_.config;
  if (config.heartbeat_timeout_s <= 0) return Time::max();
  std::set<Rank> awaited;
  for (const auto& set : engine_->sets_) {
    if (set->busy()) set->CollectAwaited(&awaited);
  }
  const Duration limit = Seconds(config.heartbeat_timeout_s);
  // This rank itself was busy, stopped or starved: others were not asked, or their answers not heard.
  const bool on_time = now - last_check_ < limit / 2;
  last_check_ = now;
  for (auto it = watched_.begin(); it != watched_.end();) {
    it = awaited.contains(it->first) && on_time ? std::next(it) : watched_.erase(it);
  }
  for (Rank rank : awaited) {
    const uint64_t beat = BeatOf(rank);
    auto [at, fresh] = watched_.try_emplace(rank, Watch{beat, now, Time{}, Time{}});
    Watch& watch = at->second;
    if (watch.beat != beat) {
      watch.beat = beat;
      watch.heard = now;
      watch.unanswered = Time{};
    }
    // Not more often: an answer wakes this rank, too.
    if (now - watch.asked >= limit / 4) {
      watch.asked = now;
      if (watch.unanswered == Time{}) watch.unanswered = now;
      Ask(rank);
    }
    // One that was never heard of may still be in init, where it cannot answer.
    const Duration patience = beat == 0 ? std::max(limit, Seconds(config.start_timeout_s)) : limit;
    // Asked a quarter of the limit after it was heard at the latest, it has had the rest to answer.
    const bool asked = watch.unanswered != Time{} && now - watch.unanswered >= patience * 3 / 4;
    if (now - watch.heard >= patience && asked) {
      if (IsTraced(rank)) {
        watch.heard = now;
        watch.unanswered = Time{};
      } else {
        watched_.clear();
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience).count();
        const int32_t detail = patience == limit ? 0 : static_cast<int32_t>(seconds);
        engine_->Revoke({transport::Cause::kSilent, rank, detail, engine_->world_.ranks[rank].pid}, {});
        const int local = engine_->world_.layout.LocalOf(rank);
        if (engine_->world_.window != nullptr && local >= 0) engine_->world_.window->Kill(local);
        return now;
      }
    }
  }
  return awaited.empty() ? Time::max() : now + limit / 4;
}

uint64_t Liveness::BeatOf(Rank rank) const {
  const World& world = engine_->world_;
  const int local = world.layout.LocalOf(rank);
  if (world.window != nullptr && local >= 0) return world.window->beat(local);
  const auto pongs = pongs_.find(rank);
  return pongs == pongs_.end() ? 0 : pongs->second;
}

void Liveness::Ask(Rank rank) {
  const World& world = engine_->world_;
  const int local = world.layout.LocalOf(rank);
  if (world.window != nullptr && local >= 0) {
    world.window->Ring(local);
  } else {
    engine_->SendControl(rank, wire::Encode(wire::Ping{1}));
  }
}

bool Liveness::IsTraced(Rank rank) const {
  const auto& world = engine_->world_;
  if (world.layout.host_of[rank] != world.layout.host_of[world.layout.rank]) return false;
  std::ifstream status(fmt::format("/proc/{}/status", world.ranks[rank].pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("TracerPid:")) return line.find_first_of("123456789") != std::string::npos;
  }
  return false;
}

}  // namespace hvd::engine
