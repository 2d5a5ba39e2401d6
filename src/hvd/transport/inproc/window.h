// SPDX-License-Identifier: Apache-2.0
#pragma once
// The Window of ranks that are threads of one process: tests, simulators and "memory:" jobs. The board is the one that
// processes use; what differs is that nobody can die alone, so there is no watcher and death is only ever simulated.
//
// Thread safety: InprocRankGroup is safe; windows as Window.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/transport/shm/arena.h"
#include "hvd/transport/window.h"

namespace hvd::transport::inproc {

// What the windows of one generation share.
//
// Lifetime: lives as long as the last window or holder.
class InprocRankGroup {
 public:
  // Global ranks of the members; the usual case is 0 .. count - 1.
  explicit InprocRankGroup(int count, uint64_t generation = 0);
  InprocRankGroup(std::vector<Rank> ranks, uint64_t generation);
  ~InprocRankGroup();
  InprocRankGroup(const InprocRankGroup&) = delete;
  InprocRankGroup& operator=(const InprocRankGroup&) = delete;

  // The group that all callers of the same name get, as long as one of them holds it.
  static std::shared_ptr<InprocRankGroup> Named(const std::string& name, const std::vector<Rank>& ranks,
                                                uint64_t generation);

  // As if the kernel had told that this rank's process died: state, cause, and every survivor's on_change.
  void SimulateDeath(int local);

  struct Shared;
  Shared& shared() { return *shared_; }

 private:
  const std::unique_ptr<Shared> shared_;
};

struct WindowOptions {
  std::shared_ptr<InprocRankGroup> group;
  int local = 0;
  int doorbell = -1;                // eventfd of this rank's loop, or -1; stays the caller's
  shm::Arena* arena = nullptr;      // nullptr: the process's
  std::function<void()> on_change;  // runs on the thread that makes the change; must not block
  Time deadline = Time::max();      // for all members to have called CreateWindow
  bool wait_for_all = true;
};

// Returns when all members have called it.
Result<std::unique_ptr<Window>> CreateWindow(const WindowOptions& options);
// Without waiting: for tests that make all windows of a group on one thread.
std::unique_ptr<Window> CreateWindow(std::shared_ptr<InprocRankGroup> group, int local, int doorbell,
                                     std::function<void()> on_change = {});

}  // namespace hvd::transport::inproc
