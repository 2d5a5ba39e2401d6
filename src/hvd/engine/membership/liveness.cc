// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/membership/liveness.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "hvd/wire/control.h"

namespace hvd::engine {

Liveness::Liveness(const World* world, const Config* config, ControlChannel* control, const SetTable* sets,
                   Membership* membership)
    : world_(world), config_(config), control_(control), sets_(sets), membership_(membership) {}

Time Liveness::Check(Time now) {
  if (config_->heartbeat_timeout_s <= 0) return Time::max();
  std::set<Rank> awaited;
  for (const auto& set : *sets_) {
    if (!set->busy()) continue;
    set->CheckMarks();
    set->CollectAwaited(&awaited);
  }
  const Duration limit = Seconds(config_->heartbeat_timeout_s);
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
    const Duration patience = beat == 0 ? std::max(limit, Seconds(config_->start_timeout_s)) : limit;
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
        membership_->DeclareLost(rank, detail);
        return now;
      }
    }
  }
  return awaited.empty() ? Time::max() : now + limit / 4;
}

uint64_t Liveness::BeatOf(Rank rank) const {
  const int local = world_->layout.LocalOf(rank);
  if (world_->window != nullptr && local >= 0) return world_->window->beat(local);
  const auto pongs = pongs_.find(rank);
  return pongs == pongs_.end() ? 0 : pongs->second;
}

void Liveness::Ask(Rank rank) {
  const int local = world_->layout.LocalOf(rank);
  if (world_->window != nullptr && local >= 0) {
    world_->window->Ring(local);
  } else {
    control_->Send(rank, wire::Encode(wire::Ping{1}));
  }
}

bool Liveness::IsTraced(Rank rank) const {
  if (world_->layout.host_of[rank] != world_->layout.host_of[world_->layout.rank]) return false;
  std::ifstream status(fmt::format("/proc/{}/status", world_->ranks[rank].pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("TracerPid:")) return line.find_first_of("123456789") != std::string::npos;
  }
  return false;
}

}  // namespace hvd::engine
