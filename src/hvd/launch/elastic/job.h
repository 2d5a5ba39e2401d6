// SPDX-License-Identifier: Apache-2.0
#pragma once
// The life of an elastic job: start processes, forward what they say to Membership (membership.h), and do what it
// decides, until all members have finished or the job cannot go on.
//
// The end of a process is an event here, and not the end of the job. A process is known by its number, because its rank
// changes with the views.
//
// Thread safety: none; one thread, on its own loop, except Mailbox. That thread must be the one that lives as long as
// the program.

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "hvd/launch/elastic/discovery.h"
#include "hvd/launch/elastic/membership.h"
#include "hvd/launch/elastic/messages.h"
#include "hvd/launch/elastic/recovery.h"
#include "hvd/launch/run/job.h"
#include "hvd/launch/run/local_crew.h"
#include "hvd/launch/run/meeting_place.h"

namespace hvd::launch::elastic {

// What processes have set in the store, between the thread that serves it and the job's.
class Mailbox {
 public:
  explicit Mailbox(loop::Loop* loop) : loop_(loop) {}
  // On any thread.
  void Put(const std::string& key, const std::string& value);
  std::vector<Note> Take();

 private:
  loop::Loop* const loop_;
  std::mutex mutex_;
  std::vector<Note> notes_;
};

class ElasticJob {
 public:
  struct Settings {
    Job::Settings job;
    Rules rules;
    std::vector<Host> hosts{};  // without a script
    std::optional<Discovery::Settings> discovery{};
    Duration start_timeout{}, elastic_timeout{};
  };

  // What the job works with. All of it outlives the job.
  struct Parts {
    Warden* warden;
    Output* output;
    MeetingPlace* place;
    Mailbox* mail;
    loop::Loop* loop;
  };

  // Signals must be blocked already (BlockSignals).
  ElasticJob(Settings settings, const Plan& plan, const Parts& parts);
  ~ElasticJob();

  // Returns when no process is left. An error: the job could not begin.
  Status Run();
  Report MakeReport() const;

 private:
  enum class Phase { kRunning, kEnding, kKilling };
  struct Process {
    Slot slot;
    SlotName name;
    int pid = 0;
    int request = 0;
    int generation = 0;  // the last view that it is a member of
    std::string sets{};  // what it said last of process sets
    bool done = false;
    bool silent = false;    // it did not respond before it was killed
    bool reported = false;  // Membership knows of its end
    Ending ending{};
    Time ended_at{};
  };
  // What a timer is for: a timer of Membership, or one of the job's own; a process or a slot.
  enum class Own { kMembership, kInspect, kSayWait, kLeaving, kNextStep };
  using TimerKey = std::tuple<Own, Timer, int, SlotName>;

  CrewEvents MakeEvents();
  Status Begin();
  void OnSignals();
  void TakeMail();
  void OnNote(const Note& note);
  // Remembers whom a survivor of a view has found silent: its peers kill such a rank themselves.
  void NoteBlame(const ReadyNote& ready);
  void OnEnded(int number, Ending ending);
  // Tells the members of the view which of them have ended: those that have not met yet wait for them.
  void TellWhoIsLost();
  void OnMet(int generation);

  // Gives an event to Membership, and does what it decides, which may cause more events.
  void Feed(Event event);
  void Do(const Action& action);
  void Start(const Action& action);
  void SendView(const View& view);
  void SendLeave(int number);
  // Remembers how the view differs from the last one that ran.
  void Collect(const View& view);
  // Kills a process that does not end in time after the job has no more use of it.
  void SeeToEnd(int number);
  // Kills a process that was left behind, after it has printed where it hangs.
  void KillParked(int number);
  // While members are awaited: whether they are stopped, or dead and only their core file is written.
  void Inspect();
  void InspectSoon();
  void SayWhoIsMissing();
  int FreeRank() const;

  void EndAll(int signal);
  void KillAll();
  void Abandon();
  bool IsAlive(const Process& process) const { return process.pid != 0 && !process.ending.over(); }
  void Set(const std::string& key, const std::string& value);
  void Arm(const TimerKey& key, Duration wait, std::function<void()> call);
  void Disarm(const TimerKey& key);
  // The processes that the report is about.
  std::vector<int> Reported() const;
  // In seconds, since the start of the job.
  double Since(Time when) const { return std::chrono::duration<double>(when - started_).count(); }

  const Settings settings_;
  const Plan& plan_;
  Output* const output_;
  MeetingPlace* const place_;
  Mailbox* const mail_;
  loop::Loop* const loop_;
  LocalCrew local_;
  Membership membership_;
  std::optional<Discovery> discovery_;
  RankPlace where_;
  std::vector<Process> processes_;  // by number
  std::map<TimerKey, loop::TimerId> timers_;
  std::deque<Event> events_;
  bool feeding_ = false;
  Phase phase_ = Phase::kRunning;
  net::Fd signals_;
  std::optional<Error> no_hosts_;
  std::string why_;  // the job cannot go on
  bool finished_ = false, abandoned_ = false;
  int interrupted_by_ = 0, ended_ = 0;
  int news_ = 0, news_of_view_ = 0;
  std::vector<Change> changes_;   // until the view runs
  std::optional<Time> began_;     // when the change was noticed
  bool rolled_back_ = false;      // in one of these views
  Duration longest_gap_{};        // between the start of a view and its first commit
  std::optional<Time> view_ran_;  // until its first commit
  Totals totals_;
  Time started_{}, over_{}, waiting_since_{};
  std::time_t started_at_ = 0;
};

}  // namespace hvd::launch::elastic
