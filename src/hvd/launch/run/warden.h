// SPDX-License-Identifier: Apache-2.0
#pragma once
// A process that does nothing until the launcher dies without a word; then it kills what the job left behind: the
// ranks' process groups and whatever else carries the job's name in its environment. It removes the folder of the job's
// secret and that of its dumps. The kernel kills the ranks themselves at once (spawn.h); this is for their children.
//
// An agent's warden watches the line to horovodrun, too: when that ends and the agent, which should then clean up, is
// not done in time, it was stopped, and is killed first.
//
// Thread safety: none.
// Lifetime: start it before any thread. The destructor dismisses it: it ends and does nothing.

#include <string>

#include "hvd/base/result.h"
#include "hvd/net/fd.h"

namespace hvd::launch {

class Warden {
 public:
  // `secret`: the folder of the job's token (secret_folder.h), or empty. `line`: a connection whose end is the job's;
  // -1: none. `dumps`: a temporary folder (flight_folder.h), or empty.
  static Result<Warden> Start(const std::string& job, const std::string& secret = {}, int line = -1,
                              const std::string& dumps = {});
  Warden(Warden&& other) noexcept;
  Warden& operator=(Warden&&) = delete;
  ~Warden();

  // This process group is the job's.
  void Watch(int group);
  // It has ended: its number may soon be that of another one.
  void Forget(int group);
  int pid() const { return pid_; }

 private:
  void Say(int group);

  Warden(int pid, net::Fd to) : pid_(pid), to_(std::move(to)) {}
  int pid_;
  net::Fd to_;
};

}  // namespace hvd::launch
