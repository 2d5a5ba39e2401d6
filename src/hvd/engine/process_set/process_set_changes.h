// SPDX-License-Identifier: Apache-2.0
#pragma once
// Creates, adds and removes the process sets of this rank: at init, and at agreed positions of the global set's log.
//
// Thread safety: CheckNew and LockChanges from any thread; the rest with the progress token.
// Lifetime: what the constructor is given outlives it.

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hvd/engine/autotuning.h"
#include "hvd/engine/engine_context.h"
#include "hvd/engine/operations.h"
#include "hvd/engine/process_set/process_set_factory.h"

namespace hvd::engine {

class ProcessSetChanges {
 public:
  // `dynamic`: whether sets may be added and removed while the engine works.
  ProcessSetChanges(const EngineContext& context, ProcessSetFactory* factory, Operations* operations,
                    Autotuning* tuning, bool dynamic, ResumePolicy resume_policy);

  // Creates the global set, and sets 1, 2, ... of these ranks. `survived`: sets of an earlier generation that have lost
  // members; two of them may have the same ranks, and one without ranks is left out.
  Status Create(const std::vector<std::vector<Rank>>& sets, bool survived);
  // Fails if there is a set of these sorted ranks. `title` names the new set in the error.
  Status CheckNew(std::string_view title, const std::vector<Rank>& ranks) const;

  // Hold it for one change by this rank's program. A rank agrees to a change only when its last one has finished: see
  // StreamMemory. Any thread.
  std::unique_lock<std::mutex> LockChanges() { return std::unique_lock(mutex_); }

  // All ranks agreed on this change.
  Error Apply(Operation* op);
  // Whether the others may not learn of the change yet, because it removes a set whose operations are not over here.
  bool IsPostponed(const Operation& op);
  // A change of this rank is over: a set that was not removed takes operations again.
  void OnComplete(const Operation& op);
  // Frees removed sets that no thread knows any more.
  void Reclaim();

  // Keeps a message for a set that this rank is about to make.
  void HoldEarlyMessage(Rank from, std::span<const std::byte> bytes);
  // Who gets those messages when a set is new.
  void OnEarlyMessage(std::function<void(Rank from, std::span<const std::byte> bytes)> receiver) {
    receiver_ = std::move(receiver);
  }

 private:
  struct EarlyMessage {
    Rank from;
    std::vector<std::byte> bytes;
  };

  std::unique_ptr<ProcessSet> Make(int id, std::vector<Rank> ranks);
  // The set that the operation removes; nullptr: it removes none that exists.
  ProcessSet* RemovedBy(const Operation& op) const;

  const EngineContext context_;
  ProcessSetFactory* const factory_;
  Operations* const operations_;
  Autotuning* const tuning_;
  const bool dynamic_;
  const ResumePolicy resume_policy_;
  std::mutex mutex_;
  std::vector<EarlyMessage> early_;
  std::function<void(Rank from, std::span<const std::byte> bytes)> receiver_;
};

}  // namespace hvd::engine
