// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks of one host, as a job sees them wherever that host is: here (local_crew.h) or behind an agent
// (remote_hosts.h). What happens to them is told through CrewEvents.

#include <functional>
#include <string_view>

#include "hvd/launch/output/output.h"
#include "hvd/launch/report/diagnose.h"

namespace hvd::launch {

struct CrewEvents {
  std::function<void(int rank, int pid)> started;
  std::function<void(int rank, Stream stream, std::string_view bytes)> output;
  // How it ended; `order` and `blames` are the job's to fill in. All that the rank itself wrote was given out before.
  std::function<void(int rank, Ending ending)> ended;
  // A signal was not passed on, because the rank has no handler for it and would have died of it.
  std::function<void(int rank, int signal)> unhandled;
};

class Crew {
 public:
  virtual ~Crew() = default;
  // Asks a rank and its process group to end by this signal, once; one that is stopped is killed.
  virtual void AskToEnd(int rank, int signal) = 0;
  // Kills the rank and its process group.
  virtual void Kill(int rank) = 0;
  // Passes a signal on to the rank alone, if it handles or ignores it: what it started may not expect the signal.
  virtual void PassOn(int rank, int signal) = 0;
};

}  // namespace hvd::launch
