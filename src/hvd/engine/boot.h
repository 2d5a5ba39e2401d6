// SPDX-License-Identifier: Apache-2.0
#pragma once
// From "I am rank r of n, and we meet there" to a World: rendezvous, then shared memory between the ranks of a host and
// connections between hosts.

#include <string>
#include <vector>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/engine/way.h"
#include "hvd/engine/world.h"

namespace hvd::engine {

struct BootOptions {
  Config config;  // rank and size are set; rendezvous_addr, token_file, generation, hostname as configured
  Way way;        // how the ranks come together
  std::vector<std::vector<Rank>> process_sets;  // compared across ranks
  bool crash_signals = true;
};

// Blocks, at most config.start_timeout_s, until all ranks have met. Errors say who is missing and where.
Result<World> Boot(const BootOptions& options);

}  // namespace hvd::engine
