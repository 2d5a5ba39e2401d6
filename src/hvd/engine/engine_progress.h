// SPDX-License-Identifier: Apache-2.0
#pragma once
// One round of an engine's work: the inbox, the messages, the process sets, and what has a time.
//
// Thread safety: as EngineWork.
// Lifetime: what the constructor is given outlives it.

#include "hvd/engine/engine_context.h"
#include "hvd/engine/engine_work.h"
#include "hvd/engine/membership/liveness.h"
#include "hvd/engine/operations.h"
#include "hvd/engine/process_set/process_set_changes.h"
#include "hvd/engine/stall/stall_inspector.h"

namespace hvd::engine {

class EngineProgress final : public EngineWork {
 public:
  EngineProgress(const EngineContext& context, Operations* operations, ProcessSetChanges* changes, Liveness* liveness,
                 StallInspector* stalls)
      : context_(context), operations_(operations), changes_(changes), liveness_(liveness), stalls_(stalls) {}

  bool Progress() override;
  bool unfinished() const override { return operations_->pending() > 0 || stalls_->active(); }
  bool has_submissions() const override { return operations_->has_submissions(); }
  Time NextEvent(Time now) override;

 private:
  const EngineContext context_;
  Operations* const operations_;
  ProcessSetChanges* const changes_;
  Liveness* const liveness_;
  StallInspector* const stalls_;
};

}  // namespace hvd::engine
