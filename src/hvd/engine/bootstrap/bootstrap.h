// SPDX-License-Identifier: Apache-2.0
#pragma once
// Makes a World of a rank, a size and a rendezvous method: the ranks find each other, then share memory with those of
// their host, then connect to other hosts.

#include <string>
#include <vector>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/engine/bootstrap/rendezvous_method.h"
#include "hvd/engine/bootstrap/world.h"

namespace hvd::engine::bootstrap {

struct BootstrapOptions {
  Config config;  // rank and size are set; rendezvous_addr, token_file, generation, hostname as configured
  RendezvousMethod method;
  std::vector<std::vector<Rank>> process_sets;  // compared across ranks
  bool crash_signals = true;
  bool handlers_are_fatal = false;  // those of the program, of crash signals
};

// Blocks, at most config.start_timeout_s, until all ranks have met. Errors say who is missing and where.
Result<World> Bootstrap(const BootstrapOptions& options);

}  // namespace hvd::engine::bootstrap
