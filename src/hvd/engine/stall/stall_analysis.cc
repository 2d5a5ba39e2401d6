// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/stall/stall_analysis.h"

#include <algorithm>
#include <iterator>

namespace hvd::engine {

using WaitStage = wire::Waiting::Stage;

bool Stall::Waits(Rank rank) const { return Lacks(rank) && std::ranges::find(waiting, rank) != waiting.end(); }

bool Stall::Lacks(Rank besides) const {
  return std::ranges::any_of(missing, [&](Rank rank) { return rank != besides && !holding.contains(rank); });
}

StallAnalysis::StallAnalysis(const std::vector<RankObservation>& observations, const MembersOf& members,
                             double limit_s) {
  for (const RankObservation& observation : observations) {
    if (!observation.reply) continue;
    Collect(observation);
    if (observation.reply->blocked) blocked_.insert(observation.rank);
    if (observation.reply->more > 0) {
      total_ = std::max(total_, observation.reply->waiting.size() + static_cast<size_t>(observation.reply->more));
    }
  }
  // Clocks are read one after the other: what has waited long enough for the one may lack a little for the other.
  const auto limit_ms = static_cast<int64_t>(limit_s * 950);
  for (auto& [key, stall] : all_) {
    FindMissing(key, &stall, members);
  }
  stalls_ = LongestFirst([&](const Stall& stall) {
    return stall.waited_ms >= limit_ms && !stall.waiting.empty() && !stall.missing.empty();
  });
  std::ranges::stable_partition(stalls_, [](const Stall* stall) { return stall->Lacks(); });
  FindFault();
}

void StallAnalysis::Collect(const RankObservation& observation) {
  for (const wire::Waiting& waiting : observation.reply->waiting) {
    const Key key{waiting.set, waiting.request.name};
    Stall& stall = all_[key];
    if (stall.sample == nullptr || stall.waiting.empty()) stall.sample = &waiting;
    if (waiting.stage == WaitStage::kHeld) {
      stall.holding.insert(observation.rank);
    } else if (waiting.stage != WaitStage::kOthers) {
      stall.waiting.push_back(observation.rank);
    }
    stall.waited_ms = std::max(stall.waited_ms, waiting.waited_ms);
    stall.agreed |= waiting.stage == WaitStage::kAgreed || waiting.stage == WaitStage::kRunning;
    stall.before |= waiting.before;
    for (const int64_t rank : waiting.missing) told_[key].insert(static_cast<Rank>(rank));
  }
}

void StallAnalysis::FindMissing(const Key& key, Stall* stall, const MembersOf& members) {
  const auto told = told_.find(key);
  if (told != told_.end()) {
    stall->missing = told->second;
  } else if (const std::vector<Rank>* all = members(key.first); all != nullptr && !stall->agreed) {
    stall->missing = {all->begin(), all->end()};  // the one who would know does not answer
  }
  if (stall->agreed) return;
  // Who was missing a moment ago may have submitted it since.
  for (const Rank rank : stall->waiting) stall->missing.erase(rank);
}

void StallAnalysis::FindFault() {
  std::set<Rank> awaited;
  for (const Stall* stall : stalls_) {
    // Who keeps it back waits for something that is a stall of its own.
    std::ranges::set_difference(stall->missing, stall->holding, std::inserter(awaited, awaited.end()));
  }
  for (const Rank rank : awaited) {
    const bool waits = std::ranges::any_of(all_, [&](const auto& one) { return one.second.Waits(rank); });
    // What it has in flight does not keep a program that is elsewhere.
    if (!waits || !blocked_.contains(rank)) at_fault_.push_back(rank);
  }
  if (at_fault_.empty() && !awaited.empty()) FindOdd();
}

// Everybody waits for somebody: most ranks stand at one operation, some at others.
void StallAnalysis::FindOdd() {
  std::map<const Stall*, std::vector<Rank>> standing;
  std::set<Rank> seen;
  // The odd one may have come to its operation later.
  const std::vector<const Stall*> all = LongestFirst([](const Stall&) { return true; });
  for (const Stall* stall : all) {
    for (const Rank rank : stall->waiting) {
      if (stall->Waits(rank) && seen.insert(rank).second) standing[stall].push_back(rank);
    }
  }
  // A name that was used before is more likely to be the right one than one that is new.
  const auto weight = [&](const Stall* stall) { return std::pair(standing[stall].size(), stall->before); };
  const Stall* usual = nullptr;
  for (const Stall* stall : all) {
    if (standing.contains(stall) && (usual == nullptr || weight(stall) > weight(usual))) usual = stall;
  }
  for (const auto& [stall, ranks] : standing) {
    if (stall == usual) continue;
    undecided_ |= weight(stall) == weight(usual);
    at_fault_.insert(at_fault_.end(), ranks.begin(), ranks.end());
  }
  if (undecided_) at_fault_.insert(at_fault_.end(), standing[usual].begin(), standing[usual].end());
  std::ranges::sort(at_fault_);
}

const Stall* StallAnalysis::MissedBy(Rank rank) const {
  const auto found = std::ranges::find_if(stalls_, [&](const Stall* stall) { return stall->IsMissing(rank); });
  return found == stalls_.end() ? nullptr : *found;
}

std::vector<const Stall*> StallAnalysis::WaitedForBy(Rank rank) const {
  return LongestFirst([&](const Stall& stall) { return stall.Waits(rank); });
}

std::vector<const Stall*> StallAnalysis::Held() const {
  return LongestFirst([](const Stall& stall) { return !stall.holding.empty(); });
}

std::vector<const Stall*> StallAnalysis::LongestFirst(const std::function<bool(const Stall&)>& fits) const {
  std::vector<const Stall*> found;
  for (const auto& [key, stall] : all_) {
    if (fits(stall)) found.push_back(&stall);
  }
  std::ranges::stable_sort(found, std::greater<>(), [](const Stall* stall) { return stall->waited_ms; });
  return found;
}

}  // namespace hvd::engine
