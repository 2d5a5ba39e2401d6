// SPDX-License-Identifier: Apache-2.0
#pragma once
// What process sets need of their engine, each by the part of the engine that does it.
//
// Thread safety: call with the progress token.
// Lifetime: what the constructor is given outlives it.

#include <utility>

#include "hvd/engine/autotuning.h"
#include "hvd/engine/engine_context.h"
#include "hvd/engine/operations.h"
#include "hvd/engine/process_set/process_set_changes.h"

namespace hvd::engine {

class ProcessSetServices final : public ProcessSetDelegate {
 public:
  ProcessSetServices(const EngineContext& context, Operations* operations, ProcessSetChanges* changes,
                     Autotuning* tuning)
      : context_(context), operations_(operations), changes_(changes), tuning_(tuning) {}

  void Complete(Operation* op, Error error) override {
    tuning_->OnComplete(*op, error);
    changes_->OnComplete(*op);
    operations_->Complete(op, std::move(error));
  }
  void SendControl(Rank rank, std::span<const std::byte> message) override { context_.control->Send(rank, message); }
  void AskForMemory(Operation* op, size_t bytes) override { operations_->AskForMemory(op, bytes); }
  void GiveUp(Error error) override { context_.membership->GiveUp(error); }
  Operation* MakeStandIn() override { return operations_->MakeStandIn(); }
  Error ApplySetChange(Operation* op) override { return changes_->Apply(op); }
  bool IsPostponed(const Operation& op) override { return changes_->IsPostponed(op); }
  algorithms::Table OnTuned(int set, const wire::Tuning& tuning) override { return tuning_->Apply(set, tuning); }

 private:
  const EngineContext context_;
  Operations* const operations_;
  ProcessSetChanges* const changes_;
  Autotuning* const tuning_;
};

}  // namespace hvd::engine
