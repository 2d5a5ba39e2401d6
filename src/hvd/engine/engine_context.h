// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of an engine that most of its other parts work with.
//
// Thread safety: that of each part.
// Lifetime: the parts outlive whatever holds a context.

#include "hvd/base/config.h"
#include "hvd/engine/bootstrap/world.h"
#include "hvd/engine/control_channel.h"
#include "hvd/engine/membership/membership.h"
#include "hvd/engine/process_set/set_table.h"
#include "hvd/engine/recorder.h"

namespace hvd::engine {

struct EngineContext {
  World* world = nullptr;
  const Config* config = nullptr;
  ControlChannel* control = nullptr;
  SetTable* sets = nullptr;
  Membership* membership = nullptr;
  Recorder* recorder = nullptr;
};

}  // namespace hvd::engine
