// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dumps flight recorders on SIGUSR2 and before the process dies of SEGV, BUS, ILL, FPE or ABRT.
//
// SIGUSR2 is taken only where its action is the default one: schedulers and trainers use it, too. The handlers of
// crashes are put over whatever is there, and hand the signal on to it afterwards. So: make this after other crash
// handlers of the library, and destroy it before them.
//
// Thread safety: everything. A forked child dumps nothing.

#include "hvd/trace/flight.h"

namespace hvd::trace {

// One registered recorder, until it is destroyed. At most 64 at a time; more are not dumped.
class FlightSignals {
 public:
  explicit FlightSignals(FlightRecorder& recorder);
  ~FlightSignals();
  FlightSignals(const FlightSignals&) = delete;
  FlightSignals& operator=(const FlightSignals&) = delete;

 private:
  int slot_ = -1;
};

}  // namespace hvd::trace
