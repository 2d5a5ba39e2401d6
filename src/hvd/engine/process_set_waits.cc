// SPDX-License-Identifier: Apache-2.0
// What a process set waits for, for reports; see process_set.h.
#include <unordered_map>
#include <utility>

#include "hvd/engine/process_set.h"

namespace hvd::engine {

using Stage = wire::Waiting::Stage;

std::vector<ProcessSet::Wait> ProcessSet::CollectWaits() const {
  std::vector<Wait> waits;
  const auto ranks_of = [&](const std::vector<int>& members) {
    std::vector<Rank> ranks;
    for (const int member : members) ranks.push_back(options_.ranks[member]);
    return ranks;
  };
  for (size_t i = 0; i < announced_.size(); ++i) {
    if (announced_[i] == nullptr) continue;
    std::vector<int> members;
    announcer_->CollectMissing(epoch_, head_ + i, &members);
    waits.push_back({announced_[i], {}, nullptr, Stage::kAsked, ranks_of(members)});
  }
  for (const Operation* op : waiting_) {
    if (op != nullptr) waits.push_back({op, {}, nullptr, Stage::kAsked, {}});
  }
  for (const Operation* op : held_) waits.push_back({op, {}, nullptr, Stage::kHeld, {}});
  if (join_waits_) waits.push_back({joined_, {}, nullptr, Stage::kAsked, {}});
  std::unordered_map<std::string_view, std::vector<Rank>> missing;
  const auto pending = sequencer_ != nullptr ? sequencer_->Pending() : std::vector<controller::Sequencer::Waiting>();
  for (const auto& row : pending) {
    if (sent_.contains(row.name)) {
      missing.emplace(row.name, ranks_of(row.missing));
    } else {
      waits.push_back({nullptr, row.name, row.signature, Stage::kOthers, ranks_of(row.missing)});
    }
  }
  for (const auto& [name, op] : sent_) {
    const auto found = missing.find(name);
    waits.push_back({op, {}, nullptr, Stage::kAsked, found == missing.end() ? std::vector<Rank>() : found->second});
  }
  for (const Running& queued : queued_) {
    for (const Operation* op : queued.ops) waits.push_back({op, {}, nullptr, Stage::kAgreed, {}});
  }
  for (const Running& allocating : allocating_) {
    for (const Operation* op : allocating.ops) waits.push_back({op, {}, nullptr, Stage::kAgreed, {}});
  }
  for (const Running& running : running_) {
    std::vector<int> members;
    running.machine->CollectAwaited(&members);
    std::erase(members, options_.me);
    for (const Operation* op : running.ops) {
      waits.push_back({op, {}, nullptr, Stage::kRunning, ranks_of(members)});
    }
  }
  return waits;
}

void ProcessSet::RecordMissing() const {
  for (const Wait& wait : CollectWaits()) {
    if (wait.op != nullptr) options_.recorder->Missing(*wait.op, wait.missing);
  }
}

}  // namespace hvd::engine
