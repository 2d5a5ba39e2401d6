// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dumps flight recorders on SIGUSR2 and before the process dies of SEGV, BUS, ILL, FPE or ABRT.
//
// SIGUSR2 is taken only where its action is the default one: schedulers and trainers use it, too. A recorder without a
// folder answers it with one line on stderr, so the signal never ends a rank. The handlers of crashes are installed if
// a recorder has a folder. They are put over whatever is there, call crash_teller first, and hand the signal on
// afterwards. So: make this after other crash handlers of the library, and destroy it before them.
//
// No handler waits for a file: a thread writes. Before a crash its handler waits for that thread, for at most 5 s, so a
// file system that does not answer neither holds the process up nor hides the signal that it dies of.
//
// Thread safety: everything. A forked child dumps nothing.

#include <functional>
#include <string_view>

#include "hvd/trace/flight.h"

namespace hvd::trace {

// One registered recorder, until it is destroyed. At most 64 at a time; more are not dumped.
class FlightSignals {
 public:
  // Dumps the recorder, for SIGUSR2, on a thread of this class. It must not wait for the file.
  using Dump = std::function<void(std::string_view reason)>;

  FlightSignals(FlightRecorder& recorder, Dump dump);
  ~FlightSignals();
  FlightSignals(const FlightSignals&) = delete;
  FlightSignals& operator=(const FlightSignals&) = delete;

 private:
  int slot_ = -1;
};

}  // namespace hvd::trace
