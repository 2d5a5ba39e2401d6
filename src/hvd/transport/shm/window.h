// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared memory between the processes of one host.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/rendezvous/store.h"
#include "hvd/transport/shm/arena.h"
#include "hvd/transport/window.h"

namespace hvd::transport::shm {

struct WindowOptions {
  rendezvous::Store* store = nullptr;  // used only during the call
  std::string prefix;                  // of store keys; equal for the ranks of one host, different between hosts
  uint64_t generation = 0;
  int local = 0;
  std::vector<Rank> ranks;  // global ranks of this host's ranks, in order; at most 256
  int doorbell = -1;        // eventfd of this rank's loop (loop::Loop::wake_fd); stays the caller's
  Arena* arena = nullptr;   // outlives the window
  std::string auth_key;     // secret of this generation; empty: user ids alone are checked
  Time deadline{};
  // Runs on the window's watcher thread whenever a peer's state, the cause, or whether a dead peer can be fenced
  // changed. Must not block; Loop::Wake() is meant.
  std::function<void()> on_change;
  bool crash_signals = true;        // see crash_signals.h
  bool handlers_are_fatal = false;  // likewise
  bool without_waitv = false;       // as if the kernel had no futex_waitv; for tests
};

// Meets the other ranks of this host; every one of them calls it. Returns when all are mapped and watched, or at the
// deadline with an error that names who is missing.
Result<std::unique_ptr<Window>> CreateWindow(const WindowOptions& options);

// Why shared memory cannot be used by this process, in words; success if it can.
Status Probe();

}  // namespace hvd::transport::shm
