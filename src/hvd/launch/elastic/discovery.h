// SPDX-License-Identifier: Apache-2.0
#pragma once
// Asks the user's script for the hosts of the job, once a second. A script that fails, hangs or prints something else
// than hosts changes nothing: the last list stays, and the user reads one line about it.
//
// A change counts when two runs in a row agree on it, so that a host that flaps does not disturb the training.
//
// Thread safety: none; on the job's loop.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/launch/plan/environment.h"
#include "hvd/launch/plan/hosts.h"
#include "hvd/launch/run/spawn.h"
#include "hvd/launch/run/warden.h"
#include "hvd/loop/loop.h"

namespace hvd::launch::elastic {

// The hosts that a script has printed, one "HOST" or "HOST:SLOTS" per line. `slots` is for lines without a number.
Result<std::vector<Host>> ReadHosts(std::string_view text, std::string_view script, std::optional<int> slots);

class Discovery {
 public:
  struct Settings {
    std::string script;  // for /bin/sh
    std::optional<int> slots{};
    std::vector<std::string> environment{};
    // Merges the names of one host, and refuses hosts that the job cannot use.
    std::function<Result<std::vector<Host>>(std::vector<Host>)> accept{};
  };
  struct Events {
    std::function<void(std::vector<Host>)> found;   // at first, and at each change
    std::function<void(const Error&)> failed;       // the first run: there is no list to keep
    std::function<void(const std::string&)> warns;  // later ones
  };

  // What is pointed to outlives it.
  Discovery(Settings settings, const Inherited& inherited, Warden* warden, loop::Loop* loop, Events events);
  ~Discovery();
  Discovery(const Discovery&) = delete;
  Discovery& operator=(const Discovery&) = delete;

  // Runs the script now, and from then on.
  void Poll();
  // Runs it no more, and ends it.
  void Stop();
  // A child of this process ended; false: it was not the script.
  bool OnChild(int pid, int status);

 private:
  Status Start();
  void Read(net::Fd* from, std::string* into);
  void OnAnswer(Result<std::vector<Host>> answer);
  void After(Duration wait, void (Discovery::*call)());
  void OnTimeout();

  const Settings settings_;
  const Inherited& inherited_;
  Warden* const warden_;
  loop::Loop* const loop_;
  const Events events_;
  std::optional<Child> child_;
  std::string out_, err_;
  bool is_too_late_ = false;
  bool has_failed_ = false;  // and the user knows
  bool stopped_ = false;
  std::optional<std::vector<Host>> hosts_, next_;
  std::optional<loop::TimerId> timer_;
};

}  // namespace hvd::launch::elastic
