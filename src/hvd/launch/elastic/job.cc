// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/elastic/job.h"

#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>

#include "hvd/launch/run/signals.h"

namespace hvd::launch::elastic {
namespace {

constexpr Duration kLeastLate = std::chrono::seconds(2);

}  // namespace

void Mailbox::Put(const std::string& key, const std::string& value) {
  auto note = ReadNote(key, value);
  if (!note) return;
  {
    const std::lock_guard lock(mutex_);
    notes_.push_back(std::move(*note));
  }
  loop_->Wake();
}

std::vector<Note> Mailbox::Take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

ElasticJob::ElasticJob(Settings settings, const Plan& plan, const Parts& parts)
    : settings_(std::move(settings)),
      plan_(plan),
      output_(parts.output),
      place_(parts.place),
      mail_(parts.mail),
      loop_(parts.loop),
      local_(settings_.job.inherited, parts.warden, parts.loop, MakeEvents()),
      membership_(settings_.rules) {
  if (!settings_.discovery) return;
  discovery_.emplace(
      *settings_.discovery, settings_.job.inherited, parts.warden, parts.loop,
      Discovery::Events{
          .found = [this](std::vector<Host> hosts) { Feed({.kind = Event::Kind::kHosts, .hosts = std::move(hosts)}); },
          .failed =
              [this](const Error& error) {
                no_hosts_ = error;
                EndAll(SIGTERM);
              },
          .warns = settings_.job.warns});
}

ElasticJob::~ElasticJob() {
  for (const auto& [key, timer] : timers_) loop_->Cancel(timer);
  if (signals_) loop_->Unwatch(signals_.get());
}

CrewEvents ElasticJob::MakeEvents() {
  return {.started =
              [this](int number, int pid) {
                processes_[number].pid = pid;
                output_->Begin(processes_[number].slot, pid);
              },
          .output = [this](int number, Stream stream,
                           std::string_view bytes) { output_->Take(number, stream, bytes, loop_->Now()); },
          .ended = [this](int number, Ending ending) { OnEnded(number, std::move(ending)); },
          .unhandled = [](int, int) {}};
}

Status ElasticJob::Run() {
  started_ = over_ = loop_->Now();
  started_at_ = std::time(nullptr);
  HVD_RETURN_IF_ERROR(Begin());
  while (!abandoned_ && !((finished_ || phase_ != Phase::kRunning) && local_.AllOver())) {
    loop_->RunOnce(Duration(-1));
    TakeMail();
  }
  over_ = loop_->Now();
  if (discovery_) discovery_->Stop();
  if (no_hosts_) return Fail(*no_hosts_);
  local_.SweepUp(phase_ != Phase::kRunning, Seconds(settings_.job.grace_s),
                 [this] { return phase_ == Phase::kKilling; });
  local_.Drain();
  for (size_t number = 0; number < processes_.size(); ++number) {
    if (processes_[number].pid != 0) output_->End(static_cast<int>(number));
  }
  if (totals_.recoveries + totals_.rollbacks > 0) settings_.job.warns(Summary(totals_));
  return {};
}

Status ElasticJob::Begin() {
  HVD_ASSIGN_OR_RETURN(signals_, OpenSignals());
  HVD_RETURN_IF_ERROR(loop_->Watch(signals_.get(), EPOLLIN, [this](uint32_t) { OnSignals(); }));
  HVD_ASSIGN_OR_RETURN(where_, settings_.job.open_place(""));
  where_.elastic = true;
  if (discovery_) {
    discovery_->Poll();
  } else {
    Feed({.kind = Event::Kind::kHosts, .hosts = settings_.hosts});
  }
  return {};
}

void ElasticJob::OnSignals() {
  for (const int signal : TakeSignals(signals_.get())) {
    if (signal == SIGCHLD) continue;
    if (!IsEndingSignal(signal)) {
      for (size_t number = 0; number < processes_.size(); ++number) {
        if (IsAlive(processes_[number])) local_.PassOn(static_cast<int>(number), signal);
      }
    } else if (phase_ == Phase::kRunning) {
      interrupted_by_ = signal;
      EndAll(signal);
    } else {
      KillAll();  // asked twice, or failing anyway
    }
  }
  local_.Reap([this](int pid, int status) {
    if (discovery_) (void)discovery_->OnChild(pid, status);
  });
}

void ElasticJob::TakeMail() {
  for (const Note& note : mail_->Take()) OnNote(note);
}

void ElasticJob::OnNote(const Note& note) {
  if (note.kind == Note::Kind::kMet) return OnMet(note.generation);
  if (note.process < 0 || note.process >= static_cast<int>(processes_.size())) return;
  Process& process = processes_[static_cast<size_t>(note.process)];
  switch (note.kind) {
    case Note::Kind::kReady:
      if (process.request > 0) (void)place_->Delete(ViewKey(note.process, process.request));
      process.request = note.ready.request;
      process.sets = note.ready.sets;
      NoteBlame(note.ready);
      Feed({.kind = Event::Kind::kReady,
            .process = note.process,
            .aligned = note.ready.aligned,
            .commit = note.ready.commit});
      break;
    case Note::Kind::kCommitted:
      if (view_ran_ && note.generation == membership_.view().generation) {
        longest_gap_ = std::max(longest_gap_, loop_->Now() - *view_ran_);
        view_ran_.reset();
      }
      Feed({.kind = Event::Kind::kCommitted, .process = note.process, .generation = note.generation});
      break;
    case Note::Kind::kDone:
      process.done = true;
      Feed({.kind = Event::Kind::kDone, .process = note.process});
      break;
    case Note::Kind::kMet:
      break;
  }
}

void ElasticJob::NoteBlame(const ReadyNote& ready) {
  const View& view = membership_.view();
  const auto blame = FindBlame(ready.cause.empty() ? ready.unstarted : ready.cause);
  if (!blame || !blame->silent || ready.generation != view.generation) return;
  for (const ViewMember& member : view.members) {
    if (member.slot.rank == blame->rank) processes_[static_cast<size_t>(member.process)].silent = true;
  }
}

void ElasticJob::OnEnded(int number, Ending ending) {
  TakeMail();  // what the process said before it ended
  Process& process = processes_[static_cast<size_t>(number)];
  ending.order = ended_++;
  process.ending = ending;
  process.ended_at = loop_->Now();
  Disarm({Own::kLeaving, {}, number, {}});
  if (ending.failed()) {
    local_.Forget(number);
    TellWhoIsLost();
  }
  if (ending.failed() && discovery_) discovery_->Poll();
  if (std::exchange(process.reported, true)) return;
  Feed({.kind = Event::Kind::kEnded, .process = number, .good = !ending.failed(), .by_itself = ending.signal == 0});
}

void ElasticJob::Feed(Event event) {
  if (phase_ != Phase::kRunning) return;
  events_.push_back(std::move(event));
  if (feeding_) return;
  feeding_ = true;
  while (!events_.empty()) {
    const Event next = std::move(events_.front());
    events_.pop_front();
    const auto before = membership_.phase();
    for (const Action& action : membership_.Step(next)) Do(action);
    if (before == membership_.phase() || membership_.phase() != Membership::Phase::kRevoked) continue;
    if (!began_) began_ = loop_->Now();
    InspectSoon();
  }
  feeding_ = false;
}

void ElasticJob::Do(const Action& action) {
  const TimerKey timer{Own::kMembership, action.timer, 0, action.slot};
  switch (action.kind) {
    case Action::Kind::kSpawn:
      return Start(action);
    case Action::Kind::kEnd:
      local_.AskToEnd(action.process, SIGTERM);
      return SeeToEnd(action.process);
    case Action::Kind::kKill:
      return KillParked(action.process);
    case Action::Kind::kView:
      return SendView(action.view);
    case Action::Kind::kLeave:
      return SendLeave(action.process);
    case Action::Kind::kNews:
      Set(NewsKey(news_++), NewsText(membership_.view().generation, ++news_of_view_, action.news));
      return;
    case Action::Kind::kArm: {
      Duration wait = Seconds(action.seconds);
      if (action.timer == Timer::kStart) wait = settings_.start_timeout;
      if (action.timer == Timer::kElastic || action.timer == Timer::kParked) wait = settings_.elastic_timeout;
      if (action.timer == Timer::kLate) wait = std::max<Duration>(kLeastLate, 4 * longest_gap_);
      return Arm(timer, wait, [this, which = action.timer, slot = action.slot] {
        Feed({.kind = Event::Kind::kFired, .timer = which, .slot = slot});
      });
    }
    case Action::Kind::kDisarm:
      if (action.timer == Timer::kElastic) Disarm({Own::kSayWait, {}, 0, {}});
      return Disarm(timer);
    case Action::Kind::kWait:
      waiting_since_ = loop_->Now();
      return SayWhoIsMissing();
    case Action::Kind::kFinish:
      finished_ = true;
      return;
    case Action::Kind::kFail:
      why_ = action.why;
      return EndAll(SIGTERM);
  }
}

void ElasticJob::Start(const Action& action) {
  Slot slot{.host = action.slot.host, .rank = FreeRank(), .local_rank = action.slot.index, .process = action.process};
  for (const Slot& planned : plan_.slots) slot.local_size = std::max(slot.local_size, planned.local_size);
  slot.local_size = std::max(slot.local_size, slot.local_rank + 1);
  slot.cross_size = 1;
  processes_.push_back({.slot = slot, .name = action.slot});
  const Status started = local_.Start(plan_, {slot}, where_);
  if (started) return;
  settings_.job.warns(started.error().message);
  Process& process = processes_.back();
  if (process.pid != 0) return local_.Kill(action.process);
  process.reported = true;
  Feed({.kind = Event::Kind::kEnded, .process = action.process});
}

// The rank that the process probably gets: scripts may read it before hvd.init().
int ElasticJob::FreeRank() const {
  for (int rank = 0;; ++rank) {
    if (std::ranges::none_of(processes_, [&](const Process& one) { return IsAlive(one) && one.slot.rank == rank; })) {
      return rank;
    }
  }
}

void ElasticJob::EndAll(int signal) {
  phase_ = Phase::kEnding;
  if (discovery_) discovery_->Stop();
  for (size_t number = 0; number < processes_.size(); ++number) local_.AskToEnd(static_cast<int>(number), signal);
  Arm({Own::kNextStep, {}, 0, {}}, Seconds(settings_.job.grace_s), [this] { KillAll(); });
}

void ElasticJob::KillAll() {
  phase_ = Phase::kKilling;
  local_.KillAll();
  Arm({Own::kNextStep, {}, 0, {}}, LocalCrew::kAfterKill, [this] { Abandon(); });
}

void ElasticJob::Abandon() {
  constexpr Duration kLookAgain = std::chrono::milliseconds(200);
  if (!local_.IsWaitingForCore()) return void(abandoned_ = true);
  Arm({Own::kNextStep, {}, 0, {}}, kLookAgain, [this] { Abandon(); });
}

void ElasticJob::Set(const std::string& key, const std::string& value) {
  if (const Status set = place_->Set(key, value); !set) {
    settings_.job.warns(fmt::format("the job's store does not answer: {}", set.error().message));
  }
}

void ElasticJob::Arm(const TimerKey& key, Duration wait, std::function<void()> call) {
  Disarm(key);
  timers_[key] = loop_->At(loop_->Now() + wait, [this, key, call = std::move(call)] {
    timers_.erase(key);
    call();
  });
}

void ElasticJob::Disarm(const TimerKey& key) {
  const auto found = timers_.find(key);
  if (found == timers_.end()) return;
  loop_->Cancel(found->second);
  timers_.erase(found);
}

}  // namespace hvd::launch::elastic
