// SPDX-License-Identifier: Apache-2.0
#pragma once
// A process that may be named across machines and reboots, and whether it still runs.
//
// Thread safety: all functions may be called from any thread.

#include <cstdint>
#include <string>

#include "hvd/base/clock.h"

namespace hvd::topology {

struct Process {
  std::string machine;  // boot id and pid namespace: where `pid` means something; empty: unknown
  int pid = 0;
  uint64_t start_time = 0;  // in clock ticks since boot; tells a reused pid
  bool operator==(const Process&) const = default;
};

enum class Life { kRuns, kEnded, kUnknown };  // unknown: it is on another machine

Process ThisProcess();
// In clock ticks since boot; 0: there is no such process here, or it is a zombie.
uint64_t StartTimeOf(int pid);
// How long ago a process of this machine was started, to 10 ms; zero: unknown.
Duration AgeOf(const Process& process);
// A zombie has ended.
Life LifeOf(const Process& process);

}  // namespace hvd::topology
