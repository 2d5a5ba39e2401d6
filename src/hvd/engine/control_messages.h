// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads the control messages of other ranks, and hands each to the part of the engine that it is for.
//
// Thread safety: call with the progress token.
// Lifetime: what the constructor is given outlives it.

#include <span>

#include "hvd/engine/clock_offset.h"
#include "hvd/engine/engine_context.h"
#include "hvd/engine/membership/liveness.h"
#include "hvd/engine/process_set/process_set_changes.h"
#include "hvd/engine/stall/stall_inspector.h"

namespace hvd::engine {

class ControlMessages {
 public:
  ControlMessages(const EngineContext& context, const ProcessSetFactory* factory, ProcessSetChanges* changes,
                  Liveness* liveness, StallInspector* stalls)
      : context_(context), factory_(factory), changes_(changes), liveness_(liveness), stalls_(stalls) {}

  void OnMessage(Rank from, std::span<const std::byte> bytes);
  // Asks rank 0 for its clock, if the timeline needs it and does not know it yet.
  void AskForClock();

 private:
  // The set of a message from one of its members; nullptr: it cannot take the message, or not yet.
  ProcessSet* SetOf(int serial, Rank from, std::span<const std::byte> bytes);
  void OnPong(Rank from, const wire::Pong& pong);

  const EngineContext context_;
  const ProcessSetFactory* const factory_;
  ProcessSetChanges* const changes_;
  Liveness* const liveness_;
  StallInspector* const stalls_;
  ClockOffset clock_offset_;
};

}  // namespace hvd::engine
