// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fixes the order of what a crash does: the peers learn of it first, then files are written.
//
// Two layers handle crashes and do not know each other: transport/shm tells the peers, trace writes a file, which can
// block. The handler that writes calls the teller before it begins.

#include <atomic>

namespace hvd {

// Tells the peers that this process dies of the signal. Safe in a signal handler; a second call does nothing.
using CrashTeller = void (*)(int signo);

// nullptr while no peer has to be told.
inline std::atomic<CrashTeller> crash_teller{nullptr};

}  // namespace hvd
