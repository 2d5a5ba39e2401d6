// SPDX-License-Identifier: Apache-2.0
#pragma once
// A job's life: start the ranks, pass on output and signals, and when one fails, or the user asks, end them all.
//
//   running  -- a rank fails -->  settling  -- a moment later -->  ending  -- grace is over -->  killing
//   running  -- the user ends it ----------------------------->  ending  -- asks again ------>  killing
//
// Settling lets the other ranks say what they saw: their words, and who else died meanwhile, tell the cause from the
// collateral. When all ranks are gone, processes that they left behind are ended in the same two steps.
//
// Thread safety: none; one thread, on its own loop. That thread must be the one that lives as long as the program.

#include <signal.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/launch/output.h"
#include "hvd/launch/plan.h"
#include "hvd/launch/report.h"
#include "hvd/launch/spawn.h"
#include "hvd/launch/warden.h"
#include "hvd/loop/loop.h"

namespace hvd::launch {

class Job {
 public:
  struct Settings {
    Duration grace = std::chrono::seconds(5);
    std::string store;  // where the ranks meet
    std::string name;   // value of kJobVariable
    Inherited inherited;
    std::function<void(double seconds)> on_started{};  // all ranks were started; may be empty
  };

  // All that is pointed to outlives the job. Signals must be blocked already (BlockSignals).
  Job(Settings settings, const Plan& plan, Warden* warden, Output* output, loop::Loop* loop);
  ~Job();

  // Starts all ranks and returns when none is left. An error: they could not be started; what was is ended.
  Status Run();
  Report MakeReport() const;

  // The signals that a job handles itself, blocked from now on; returns what was blocked before.
  static sigset_t BlockSignals();

 private:
  enum class Phase { kRunning, kSettling, kEnding, kKilling };
  struct Member {
    const Slot* slot;
    Child child;
    Ending ending;
    Time ended_at{};
    int last_sent = 0;  // signal that may have ended it
  };

  Status WatchEvents();
  Status StartAll();
  void ReadFrom(Member& member, Stream stream, size_t most);
  void Drain(Member& member);
  void OnSignals();
  void OnExecFailure();
  void Reap();
  void OnEnd(Member& member, int status);
  void EndAll(int signal);
  void AskToEnd(Member& member, int signal);
  void EndBecauseOfFailure();
  void EndThoseWhoLeave();
  void KillAll();
  // Gives up on what cannot even be killed.
  void Abandon() { abandoned_ = true; }
  void SweepUp();
  bool AllOver() const;
  // Runs `call` after `wait`, in place of what was to be done next.
  void Next(Duration wait, void (Job::*call)());

  const Settings settings_;
  const Plan& plan_;
  Warden* const warden_;
  Output* const output_;
  loop::Loop* const loop_;
  Phase phase_ = Phase::kRunning;
  std::vector<Member> members_;
  net::Fd signals_, failures_in_, failures_out_;
  std::optional<loop::TimerId> timer_;
  int interrupted_by_ = 0;
  bool abandoned_ = false;
  int ended_ = 0;
  Time started_{}, over_{}, ended_by_us_at_{};
  std::time_t started_at_ = 0;
};

}  // namespace hvd::launch
