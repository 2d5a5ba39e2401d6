// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who waits for whom, from what every rank said about itself; stall_report.h puts it into words and has the terms.

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hvd/engine/stall/stall_report.h"

namespace hvd::engine {

// One operation, as all ranks see it.
struct Stall {
  const wire::Waiting* sample = nullptr;  // by a rank that submitted it
  std::vector<Rank> waiting;              // who submitted it
  std::set<Rank> missing;
  std::set<Rank> holding;  // of those, who keeps it back while it waits for something else
  int64_t waited_ms = 0;
  bool agreed = false;  // all submitted it; who is missing does not move its data
  bool before = false;  // done earlier under this name

  bool IsMissing(Rank rank) const { return missing.contains(rank); }
  // Whether anybody else than `rank` is missing who does not keep it back.
  bool Lacks(Rank besides = -1) const;
  bool Waits(Rank rank) const;
};

class StallAnalysis {
 public:
  StallAnalysis(const std::vector<RankObservation>& observations, const MembersOf& members, double limit_s);

  // Those that waited long enough, the longest first; last those that are only kept back.
  const std::vector<const Stall*>& stalls() const { return stalls_; }
  const std::vector<Rank>& at_fault() const { return at_fault_; }
  // Whether everybody waits for somebody, and so many wait for this as for that that nobody is more right.
  bool undecided() const { return undecided_; }

  // Removals of process sets that some rank keeps back.
  std::vector<const Stall*> Held() const;
  // How many operations wait, with those that ranks had no room to name.
  size_t total() const { return std::max(total_, stalls_.size()); }

  // The longest stall that the rank is missing in; among equals the first. nullptr: none.
  const Stall* MissedBy(Rank rank) const;
  // What the rank itself waits for, the longest first.
  std::vector<const Stall*> WaitedForBy(Rank rank) const;

 private:
  using Key = std::pair<int, std::string>;

  void Collect(const RankObservation& observation);
  void FindMissing(const Key& key, Stall* stall, const MembersOf& members);
  void FindFault();
  void FindOdd();
  std::vector<const Stall*> LongestFirst(const std::function<bool(const Stall&)>& fits) const;

  std::map<Key, Stall> all_;
  std::set<Rank> blocked_;              // their programs wait
  std::map<Key, std::set<Rank>> told_;  // who is missing, as far as ranks know
  std::vector<const Stall*> stalls_;
  std::vector<Rank> at_fault_;
  bool undecided_ = false;
  size_t total_ = 0;
};

}  // namespace hvd::engine
