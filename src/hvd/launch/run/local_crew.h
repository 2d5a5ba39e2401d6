// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ranks of this machine: children of this process, each the leader of a process group.
//
// Thread safety: none; on one loop, turned by the thread that lives as long as the program.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/launch/plan/plan.h"
#include "hvd/launch/run/crew.h"
#include "hvd/launch/run/spawn.h"
#include "hvd/launch/run/warden.h"
#include "hvd/loop/loop.h"

namespace hvd::launch {

class LocalCrew final : public Crew {
 public:
  // For the kernel to end what was killed. A process that is stuck in a device is left to it.
  static constexpr Duration kAfterKill = std::chrono::seconds(5);
  // For the kernel to write the core file of a rank that crashed.
  static constexpr Duration kCoreDump = std::chrono::seconds(60);

  // All that is pointed to outlives it.
  LocalCrew(const Inherited& inherited, Warden* warden, loop::Loop* loop, CrewEvents events);
  ~LocalCrew() override;
  LocalCrew(const LocalCrew&) = delete;
  LocalCrew& operator=(const LocalCrew&) = delete;

  // Starts the ranks of these slots. After an error some may run. Processes of an elastic job are known by their
  // numbers where others are by their ranks; more of them can be started later.
  Status Start(const Plan& plan, const std::vector<Slot>& slots, const RankPlace& place);
  void AskToEnd(int rank, int signal) override;
  void Kill(int rank) override;
  void PassOn(int rank, int signal) override;
  void KillAll();
  // Kills what is left of the process group of a rank that has ended; for a job that goes on without the rank.
  void Forget(int rank);
  // Whether a rank that is to be killed writes its core file; kills those that take too long. Ask now and then.
  bool IsWaitingForCore();

  // Takes the ends of children; call it at SIGCHLD. Those that are no ranks are given to `other`, which may be empty.
  void Reap(const std::function<void(int pid, int status)>& other = {});
  bool AllOver() const;
  // Stops and starts taking what ranks print: they wait while nobody takes it.
  void PauseOutput(bool pause);

  // Ends what the ranks left behind, all descendants of this process but the warden: at once if `kill`, else after
  // having asked and waited for `grace`. Turns the loop; `hurry`, asked now and then, makes it kill.
  void SweepUp(bool kill, Duration grace, const std::function<bool()>& hurry);
  // Takes what is left in the pipes.
  void Drain();

 private:
  struct Member {
    int rank;
    Child child;
    bool over = false;
    bool group_gone = false;  // no process has its number as group any more, so others may get it
    int asked_by = 0;         // signal that asked it to end
    int last_sent = 0;        // that one, or SIGKILL
    std::optional<Time> dumping_until;
    std::string exec_error;
  };

  Status OpenFailures();
  Status Watch(Member& member, Stream stream);
  void ReadFrom(Member& member, Stream stream, size_t most);
  void Drain(Member& member);
  void OnExecFailure();
  void OnEnd(Member& member, int status);
  void ForgetEmptyGroups();
  Member* Running(int rank);

  const Inherited& inherited_;
  Warden* const warden_;
  loop::Loop* const loop_;
  const CrewEvents events_;
  std::map<int, Member> members_;  // by rank
  net::Fd failures_in_, failures_out_;
  bool paused_ = false;
};

}  // namespace hvd::launch
