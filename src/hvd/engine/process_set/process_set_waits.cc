// SPDX-License-Identifier: Apache-2.0
// What a process set waits for, for reports; see process_set.h.
#include <unordered_map>
#include <utility>

#include "hvd/engine/process_set/process_set.h"

namespace hvd::engine {

using Stage = OperationStages::Stage;
using WaitStage = wire::Waiting::Stage;

std::vector<ProcessSet::Wait> ProcessSet::CollectWaits() const {
  std::vector<Wait> waits;
  std::vector<Wait> others;
  const auto ranks_of = [&](const std::vector<int>& members) {
    std::vector<Rank> ranks;
    for (const int member : members) ranks.push_back(options_.ranks[member]);
    return ranks;
  };
  std::unordered_map<std::string_view, std::vector<Rank>> missing;
  const auto pending = sequencer_ != nullptr ? sequencer_->Pending() : std::vector<controller::Sequencer::Waiting>();
  for (const auto& row : pending) {
    if (stages_.sent.contains(row.name)) {
      missing.emplace(row.name, ranks_of(row.missing));
    } else {
      others.push_back({nullptr, row.name, row.signature, WaitStage::kOthers, ranks_of(row.missing)});
    }
  }
  stages_.ForEach([&](Stage stage, size_t index, const Operation* op) {
    Wait& wait = waits.emplace_back(Wait{op, {}, nullptr, WaitStage::kAsked, {}});
    std::vector<int> members;
    if (stage == Stage::kHeld) wait.stage = WaitStage::kHeld;
    if (stage == Stage::kQueued || stage == Stage::kAllocating) wait.stage = WaitStage::kAgreed;
    if (stage == Stage::kAnnounced) announcer_->CollectMissing(epoch_.number, epoch_.head + index, &members);
    if (stage == Stage::kRunning) {
      wait.stage = WaitStage::kRunning;
      stages_.running[index].machine->CollectAwaited(&members);
      std::erase(members, options_.me);
    }
    wait.missing = ranks_of(members);
    const auto found = stage == Stage::kSent ? missing.find(op->request.name) : missing.end();
    if (found != missing.end()) wait.missing = found->second;
  });
  if (join_.waits) waits.push_back({join_.op, {}, nullptr, WaitStage::kAsked, {}});
  waits.insert(waits.end(), others.begin(), others.end());
  return waits;
}

void ProcessSet::RecordMissing() const {
  for (const Wait& wait : CollectWaits()) {
    if (wait.op != nullptr) options_.recorder->Missing(*wait.op, wait.missing);
  }
}

}  // namespace hvd::engine
