// SPDX-License-Identifier: Apache-2.0
#pragma once
// The signals that horovodrun and its agents handle themselves, and limits that they change for themselves.
//
// Thread safety: for the program's start, on its first thread.

#include <signal.h>
#include <sys/resource.h>

#include <span>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/net/fd.h"

namespace hvd::launch {

// Blocks them from now on; returns what was blocked before.
sigset_t BlockSignals();
// A descriptor that tells of them (signalfd), non-blocking.
Result<net::Fd> OpenSignals();
// Those that came since the last time.
std::vector<int> TakeSignals(int fd);

// They end the job; others that are handled are passed on to the ranks.
bool IsEndingSignal(int signal);

// Raises the limit on open files as far as it goes; returns what it was.
rlimit RaiseFileLimit();

}  // namespace hvd::launch
