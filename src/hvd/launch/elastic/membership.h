// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decides who the members of an elastic job are: which processes to start, and which of them form the next view.
//
//   starting  -- enough are ready ------------------------------>  stable
//   stable    -- a member is lost, or asks for the next view --->  revoked
//   revoked   -- all live members are ready, and enough -------->  stable
//   revoked   -- all live members are ready, but too few ------->  waiting  -- enough are ready -->  stable
//   any       -- all members are done, or the job cannot go on ->  ended
//
// A view is formed only of processes that are ready, so a survivor waits for members of its own view, never for one
// that still starts. The agreed commit is the least of the newest commits that the processes of the highest class hold.
// The class of a process is the last generation in which it had the same state as all others. The first rank of a view
// is always a process that holds the agreed commit, because programs send their state from there.
//
// Thread safety: none. A pure function of its events: it has no clock and starts nothing. Timers are actions that come
// back as events.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hvd/launch/plan/hosts.h"

namespace hvd::launch::elastic {

struct Rules {
  int wanted = 1;  // -np: what the first view waits for
  int min_np = 1;
  int max_np = 1;
  std::optional<int> reset_limit{};  // failures after which a view is formed
};

enum class Timer {
  kStart,    // the first view waits for all processes no longer
  kLate,     // members that are not ready are left behind
  kElastic,  // a job with too few ranks ends
  kParked,   // a process that was left behind, in a slot, is not waited for any more
  kRespawn,  // of a slot
};

struct SlotName {
  std::string host;
  int index = 0;
  auto operator<=>(const SlotName&) const = default;
};

struct Event {
  enum class Kind {
    kHosts,      // the hosts of the job and their slots are these
    kReady,      // a process waits for a view
    kCommitted,  // a process has completed a commit
    kDone,       // a process has finished its training
    kEnded,      // a process is gone
    kFired,      // a timer
  };
  Kind kind;
  int process = -1;
  // Of kReady: the generation in which the process had the state of all others, and the newest commit that it holds.
  int aligned = 0;
  int64_t commit = -1;
  int generation = 0;     // of kCommitted
  bool good = false;      // of kEnded: with exit code 0
  bool by_itself = true;  // of kEnded: with an exit code, not by a signal
  std::vector<Host> hosts{};
  Timer timer = Timer::kStart;
  SlotName slot{};
};

struct ViewMember {
  int process = -1;
  Slot slot;
};

// The members by rank.
struct View {
  int generation = 0;
  std::vector<ViewMember> members{};
  std::vector<int> synced{};   // ranks that hold the agreed commit
  int64_t commit = -1;         // -1: nobody holds one
  bool rolled_back = false;    // a complete commit is lost with all that held it
  std::vector<int> lost{};     // processes of the last view that ended
  std::vector<int> parked{};   // processes of the last view that were not ready in time
  std::vector<int> removed{};  // processes of the last view whose slots are no longer the job's
  std::vector<int> added{};    // processes that were not in the last view
};

// What a change of hosts was, as horovod.common.membership numbers it.
enum class News { kRemoved = 1, kAdded = 2, kMixed = 3 };

struct Action {
  enum class Kind {
    kSpawn,   // start a process in a slot
    kEnd,     // ask a process to end
    kKill,    // end a process that does not come back
    kView,    // give all members the view
    kLeave,   // answer a process that the job needs it no more
    kNews,    // have the members leave the generation at their next commit
    kArm,     // start a timer anew
    kDisarm,  // stop a timer
    kWait,    // too few processes are ready; say so now and then, until a view
    kFinish,  // the job has ended well
    kFail,    // the job cannot go on
  };
  Kind kind;
  int process = -1;
  SlotName slot{};
  View view{};
  News news = News::kAdded;
  Timer timer = Timer::kStart;
  int seconds = 0;    // of kArm of kRespawn; the other timers have settings of their own
  std::string why{};  // of kFail
};

class Membership {
 public:
  enum class Phase { kStarting, kStable, kRevoked, kWaiting, kEnded };

  explicit Membership(const Rules& rules) : rules_(rules) {}

  std::vector<Action> Step(const Event& event);

  Phase phase() const { return phase_; }
  const View& view() const { return view_; }
  int resets() const { return resets_; }
  // Processes that are alive and not ready, though others wait for them.
  std::vector<int> Awaited() const;
  // Processes that are ready.
  int Ready() const;
  // Slots of all hosts.
  int Slots() const;
  // The whole state as text, for tests that explore states.
  std::string Key() const;

 private:
  enum class State { kBooting, kReady, kRunning, kDone, kLeaving };
  struct Process {
    SlotName slot;
    State state = State::kBooting;
    int rank = -1;  // in the current view; -1: not a member
    bool was_member = false;
    bool removed = false;  // its slot is no longer the job's
    int aligned = 0;
    int64_t commit = -1;
  };
  struct SlotState {
    int failures = 0;
    bool pending = false;  // a timer runs until the next process
  };

  void OnHosts(const std::vector<Host>& hosts);
  // Before the first view: waits for slots if there are too few, otherwise for processes.
  void AwaitSlots(bool first, bool lacked);
  void OnReady(const Event& event);
  void OnCommitted(const Event& event);
  void OnDone(int process);
  void OnEnded(const Event& event);
  void OnFired(const Event& event);
  void OnLate();
  void OnParkedTooLong(const SlotName& slot);

  // What follows from the new state.
  void Advance();
  void Fill();
  void CheckStart();
  void CheckRevoked();
  void CheckEnd();
  // Members have finished, and nobody who is ready has their state: those would begin again. Returns whether it is so.
  bool DismissNewcomers();
  void Announce();
  bool CanForm() const;
  void Form();
  std::vector<int> Candidates() const;
  // Orders the members of a view: ranks are places in the result.
  std::vector<int> InOrder(std::vector<int> chosen, int aligned) const;
  void SetSlots(std::vector<ViewMember>* members) const;
  void Fail(std::string why);

  bool IsMember(const Process& process) const { return process.rank >= 0; }
  bool IsActive(const SlotName& slot) const;
  int Live() const;
  void Do(Action action) { actions_.push_back(std::move(action)); }

  const Rules rules_;
  Phase phase_ = Phase::kStarting;
  std::vector<Host> hosts_;
  std::map<int, Process> processes_;  // that are alive
  std::map<SlotName, SlotState> slots_;
  View view_;
  int next_ = 0;                    // number of the next process
  int resets_ = 0;                  // after a failure
  int fruitless_ = 0;               // members that ended by themselves since the last commit
  int committed_ = 0;               // the last generation with a complete commit
  bool draining_ = false;           // a member has finished: nobody is started any more
  bool is_late_ = false;            // the timer of starting has fired
  bool announced_ = false;          // the members of this view know of a change
  std::vector<int> lost_, parked_;  // since the view was formed
  std::vector<Action> actions_;
};

}  // namespace hvd::launch::elastic
