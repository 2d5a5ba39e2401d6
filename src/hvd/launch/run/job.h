// SPDX-License-Identifier: Apache-2.0
#pragma once
// A job's life: wait for the agents of other hosts, start the ranks, pass on output and signals, and when one fails, or
// the user asks, end them all.
//
//   running  -- a rank fails -->  settling  -- a moment later -->  ending  -- grace is over -->  killing
//   running  -- the user ends it ----------------------------->  ending  -- asks again ------>  killing
//
// Settling lets the other ranks say what they saw: their words, and who else died meanwhile, tell the cause from the
// collateral. When all ranks are gone, processes that they left behind are ended in the same two steps.
//
// Thread safety: none; one thread, on its own loop. That thread must be the one that lives as long as the program.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/launch/output/output.h"
#include "hvd/launch/plan/plan.h"
#include "hvd/launch/remote/remote_hosts.h"
#include "hvd/launch/report/report.h"
#include "hvd/launch/run/arrivals.h"
#include "hvd/launch/run/local_crew.h"
#include "hvd/launch/run/spawn.h"
#include "hvd/launch/run/warden.h"
#include "hvd/loop/loop.h"

namespace hvd::launch {

class Job {
 public:
  struct Settings {
    double grace_s = 5;
    Inherited inherited;
    // Opens the place where ranks meet: at this address of this machine, or, if it is empty, for this machine alone.
    std::function<Result<RankPlace>(const std::string& address)> open_place;
    // Who has come to hvd.init(); makes the loop turn when that changes. nullptr: nothing is said about it.
    const Arrivals* arrivals = nullptr;
    // The user asked the job to end while it ran; before the ranks hear of it. May be empty.
    std::function<void()> interrupted{};
    // Tells ranks that wait there of others that ended well, see MeetingPlace.
    std::function<void(const std::string& ranks)> tell_who_left;
    // For the user, about how it goes; may be empty.
    std::function<void(const std::string& line)> says{};
    // The same, about what they should know anyway.
    std::function<void(const std::string& line)> warns;
  };

  // All that is pointed to outlives the job. Signals must be blocked already (BlockSignals). `remote`: the plan's other
  // hosts; nullptr if there are none.
  Job(Settings settings, const Plan& plan, Warden* warden, Output* output, RemoteHosts* remote, loop::Loop* loop);
  ~Job();

  // Starts all ranks and returns when none is left. An error: they could not be started; what was is ended.
  Status Run();
  Report MakeReport() const;

 private:
  enum class Phase { kRunning, kSettling, kEnding, kKilling };
  struct Member {
    const Slot* slot;
    Crew* crew;
    int pid = 0;
    bool asked = false;  // to end, by us
    Ending ending{};
    Time ended_at{};
  };

  CrewEvents MakeEvents();
  // Until the agents of all hosts are here; false: they will not be.
  Result<bool> Gather();
  Status StartAll();
  void OnStarted(int rank, int pid);
  void OnEnded(int rank, Ending ending);
  // Says which ranks have ended well: others may be waiting for them in hvd.init().
  void TellWhoLeft();
  void OnHostLost(const std::string& host, const std::string& why);
  void OnHostFailure(const HostFailure& failure);
  void OnSignals();
  // Passes a signal that ends nothing on to the ranks, and names those that have no handler for it.
  void PassOn(int signal);
  void EndAll(int signal);
  void AskToEnd(Member& member, int signal);
  void EndBecauseOfFailure();
  void EndThoseWhoLeave();
  void KillAll();
  // Gives up on what cannot even be killed. A rank that writes its core file gets the time for it.
  void Abandon();
  void SweepUp();
  bool AllOver() const;
  bool Has(int rank) const { return rank >= 0 && rank < static_cast<int>(members_.size()); }
  // Runs `call` after `wait`, in place of what was to be done next.
  void Next(Duration wait, void (Job::*call)());
  void Say(const std::string& line) const;
  // Ranks that have not come to hvd.init() while others wait there, all still running.
  std::vector<int> Awaited() const;
  // Says, once, that all have come to hvd.init(); has SayWhoIsAwaited begin.
  void NoticeArrivals();
  // Says after `wait`, and then again, who has not come to hvd.init().
  void SayWhoIsAwaited(Duration wait);
  void StopSaying();
  // Says for which ranks the grace period runs.
  void SayGrace();
  void SayGraceLater();

  const Settings settings_;
  const Plan& plan_;
  Output* const output_;
  RemoteHosts* const remote_;
  loop::Loop* const loop_;
  LocalCrew local_;
  Phase phase_ = Phase::kRunning;
  std::vector<Member> members_;
  net::Fd signals_;
  std::optional<loop::TimerId> timer_;
  std::optional<loop::TimerId> awaited_;
  std::optional<HostFailure> host_failure_;
  std::string meeting_address_;  // of this machine, that all hosts reach; empty: there are no others
  std::vector<int> unhandled_;   // local ranks that did not get the last signal that was passed on
  int interrupted_by_ = 0;
  bool ranks_started_ = false;
  bool all_came_ = false;
  bool abandoned_ = false;
  int up_ = 0, ended_ = 0;
  Time started_{}, over_{}, ended_by_us_at_{};
  std::time_t started_at_ = 0;
};

}  // namespace hvd::launch
