// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/job.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <set>

#include "hvd/launch/plan/remote_environment.h"
#include "hvd/launch/run/signals.h"

namespace hvd::launch {
namespace {

// For the others to say what they saw of a failure.
constexpr Duration kSettle = std::chrono::milliseconds(500);
// For a rank that the others say has left to get through its exit: its code is the one that counts.
constexpr Duration kLeaving = std::chrono::seconds(2);
// For an agent to clean up, beyond the time that it gives what ranks left behind.
constexpr Duration kAgentsTime = std::chrono::seconds(5);

// When a wait is mentioned, and then again.
constexpr Duration kFirstWord = std::chrono::seconds(3);
constexpr Duration kNextWord = std::chrono::seconds(10);
constexpr Duration kGraceWord = std::chrono::seconds(1);

std::string Shortened(const std::vector<std::string>& hosts) {
  constexpr size_t kShown = 8;
  if (hosts.size() <= kShown) return fmt::format("{}", fmt::join(hosts, ", "));
  return fmt::format("{} and {} more", fmt::join(hosts.begin(), hosts.begin() + kShown, ", "), hosts.size() - kShown);
}

double InSeconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Job::Job(Settings settings, const Plan& plan, Warden* warden, Output* output, RemoteHosts* remote, loop::Loop* loop)
    : settings_(std::move(settings)),
      plan_(plan),
      output_(output),
      remote_(remote),
      loop_(loop),
      local_(settings_.inherited, warden, loop, MakeEvents()) {
  for (const Slot& slot : plan_.slots) members_.push_back({.slot = &slot, .crew = &local_});
}

Job::~Job() {
  if (timer_) loop_->Cancel(*timer_);
  StopSaying();
  if (signals_) loop_->Unwatch(signals_.get());
}

CrewEvents Job::MakeEvents() {
  return {.started = [this](int rank, int pid) { OnStarted(rank, pid); },
          .output =
              [this](int rank, Stream stream, std::string_view bytes) {
                if (Has(rank) && members_[rank].pid != 0) output_->Take(rank, stream, bytes, loop_->Now());
              },
          .ended = [this](int rank, Ending ending) { OnEnded(rank, std::move(ending)); },
          .unhandled = [this](int rank, int) { unhandled_.push_back(rank); }};
}

Status Job::Run() {
  started_ = over_ = loop_->Now();
  started_at_ = std::time(nullptr);
  HVD_ASSIGN_OR_RETURN(signals_, OpenSignals());
  HVD_RETURN_IF_ERROR(loop_->Watch(signals_.get(), EPOLLIN, [this](uint32_t) { OnSignals(); }));
  HVD_ASSIGN_OR_RETURN(const bool gathered, Gather());
  Status started;
  if (gathered) {
    started = StartAll();
    if (!started) KillAll();
    while (ranks_started_ && !AllOver()) {
      loop_->RunOnce(Duration(-1));
      NoticeArrivals();
    }
    StopSaying();
  }
  over_ = loop_->Now();
  SweepUp();
  for (Member& member : members_) {
    if (member.pid == 0) continue;
    output_->End(member.slot->rank);
    member.ending.blames = output_->blame(member.slot->rank);
  }
  return started;
}

Result<bool> Job::Gather() {
  if (remote_ == nullptr) return true;
  RemoteHosts::Events events{.crew = MakeEvents(),
                             .failed = [this](const HostFailure& failure) { OnHostFailure(failure); },
                             .lost = [this](const std::string& host, const std::string& why) { OnHostLost(host, why); },
                             .says = [this](const std::string& line) { Say(line); },
                             .warns = settings_.warns};
  HVD_RETURN_IF_ERROR(remote_->Open(std::move(events)));
  for (Member& member : members_) {
    if (Crew* crew = remote_->CrewOf(member.slot->host)) member.crew = crew;
  }
  const std::vector<std::string>& others = plan_.remote_hosts;
  std::set<std::string> hosts;
  for (const Slot& slot : plan_.slots) hosts.insert(slot.host);
  Say(fmt::format("{} {}, {} of them other machines: {}", hosts.size(), hosts.size() == 1 ? "host" : "hosts",
                  others.size(), Shortened(others)));
  HVD_RETURN_IF_ERROR(remote_->Call());
  while (!remote_->AllHere() && !host_failure_ && interrupted_by_ == 0) loop_->RunOnce(Duration(-1));
  if (host_failure_ || interrupted_by_ != 0) return false;
  const auto address = remote_->CommonAddress();
  if (!address) {
    OnHostFailure({fmt::format("{}", fmt::join(others, ", ")), kUnreachable, address.error().message,
                   "name one that all can reach with --driver-address or --network-interfaces"});
    return false;
  }
  meeting_address_ = *address;
  return true;
}

Status Job::StartAll() {
  HVD_ASSIGN_OR_RETURN(const RankPlace place, settings_.open_place(meeting_address_));
  ranks_started_ = true;
  if (remote_ != nullptr) {
    remote_->StartRanks(ForOtherHosts(plan_, std::filesystem::current_path().string()), place, settings_.grace_s);
  }
  std::vector<Slot> here;
  for (const Member& member : members_) {
    if (member.crew == &local_) here.push_back(*member.slot);
  }
  return local_.Start(plan_, here, place);
}

void Job::OnStarted(int rank, int pid) {
  if (!Has(rank) || members_[rank].pid != 0) return;
  members_[rank].pid = pid;
  output_->Begin(*members_[rank].slot, pid);
  if (++up_ < static_cast<int>(members_.size())) return;
  Say(fmt::format("{} {} started: {}", up_, up_ == 1 ? "rank" : "ranks", plan_.program));
}

std::vector<int> Job::Awaited() const {
  if (settings_.arrivals == nullptr || phase_ != Phase::kRunning || ended_ > 0) return {};
  return settings_.arrivals->Awaited(static_cast<int>(members_.size()));
}

void Job::NoticeArrivals() {
  if (settings_.arrivals == nullptr || all_came_ || phase_ != Phase::kRunning) return;
  all_came_ = settings_.arrivals->all();
  if (all_came_) {
    StopSaying();
    Say("ranks up: all have called hvd.init()");
  } else if (!awaited_ && !Awaited().empty()) {
    SayWhoIsAwaited(kFirstWord);
  }
}

void Job::SayWhoIsAwaited(Duration wait) {
  awaited_ = loop_->At(loop_->Now() + wait, [this] {
    awaited_.reset();
    const std::vector<int> awaited = Awaited();
    if (awaited.empty()) return;
    Say(fmt::format("{} {} not called hvd.init() yet; --start-timeout limits how long the others wait there",
                    RankList(awaited), awaited.size() == 1 ? "has" : "have"));
    SayWhoIsAwaited(kNextWord);
  });
}

void Job::StopSaying() {
  if (awaited_) loop_->Cancel(*awaited_);
  awaited_.reset();
}

void Job::SayGraceLater() {
  StopSaying();
  awaited_ = loop_->At(loop_->Now() + kGraceWord, [this] {
    awaited_.reset();
    SayGrace();
  });
}

void Job::SayGrace() {
  std::vector<int> running;
  for (const Member& member : members_) {
    if (!member.ending.over() && member.pid != 0) running.push_back(member.slot->rank);
  }
  if (running.empty()) return;
  settings_.warns(
      fmt::format("waiting up to {:g} s for {} to end (--grace-period)", settings_.grace_s, RankList(running)));
}

void Job::Say(const std::string& line) const {
  if (settings_.says) settings_.says(fmt::format("{:.3f} s: {}", InSeconds(loop_->Now() - started_), line));
}

void Job::OnSignals() {
  for (const int signal : TakeSignals(signals_.get())) {
    if (signal == SIGCHLD) continue;
    if (!IsEndingSignal(signal)) {
      PassOn(signal);
      continue;
    }
    if (phase_ == Phase::kRunning) {
      interrupted_by_ = signal;
      if (settings_.interrupted) settings_.interrupted();
      EndAll(signal);
    } else {
      KillAll();  // asked twice, or failing anyway
    }
  }
  local_.Reap([this](int pid, int status) {
    if (remote_ != nullptr) (void)remote_->OnChild(pid, status);
  });
}

void Job::PassOn(int signal) {
  unhandled_.clear();
  for (const Member& member : members_) {
    if (member.pid != 0 && !member.ending.over()) member.crew->PassOn(member.slot->rank, signal);
  }
  if (unhandled_.empty()) return;
  settings_.warns(fmt::format("{} was not passed on to {}, because it would end a process that has no handler for it",
                              SignalName(signal), RankList(unhandled_)));
}

void Job::OnEnded(int rank, Ending ending) {
  if (!Has(rank) || members_[rank].ending.over()) return;
  Member& member = members_[rank];
  ending.order = ended_++;
  member.ending = std::move(ending);
  member.ended_at = loop_->Now();
  if (phase_ != Phase::kRunning) return;
  if (!member.ending.failed()) return TellWhoLeft();
  phase_ = Phase::kSettling;
  Next(kSettle, &Job::EndBecauseOfFailure);
}

void Job::TellWhoLeft() {
  std::vector<int> left;
  for (const Member& member : members_) {
    if (member.ending.over()) left.push_back(member.slot->rank);
  }
  // Nobody is there who could wait for them.
  if (left.size() == members_.size()) return;
  settings_.tell_who_left(fmt::format("{}", fmt::join(left, " ")));
}

void Job::OnHostLost(const std::string& host, const std::string& why) {
  Say(fmt::format("host {} is lost: {}", host, why));
  for (Member& member : members_) {
    if (member.slot->host != host || member.ending.over()) continue;
    Ending ending;
    ending.lost = why;
    ending.told = member.asked;
    OnEnded(member.slot->rank, std::move(ending));
  }
}

void Job::OnHostFailure(const HostFailure& failure) {
  host_failure_ = failure;
  if (!ranks_started_) return;
  // Of those that were not started there is nothing to end. The others have only begun.
  for (Member& member : members_) {
    if (member.slot->host == failure.host && member.pid == 0) member.ending.lost = failure.what;
  }
  if (phase_ == Phase::kRunning) EndAll(SIGTERM);
}

void Job::EndAll(int signal) {
  phase_ = Phase::kEnding;
  for (Member& member : members_) AskToEnd(member, signal);
  SayGraceLater();
  Next(Seconds(settings_.grace_s), &Job::KillAll);
}

void Job::AskToEnd(Member& member, int signal) {
  if (member.ending.over() || member.asked) return;
  member.asked = true;
  member.crew->AskToEnd(member.slot->rank, signal);
}

void Job::EndBecauseOfFailure() {
  phase_ = Phase::kEnding;
  std::set<int> leaving;
  for (const Member& member : members_) {
    if (member.pid == 0) continue;
    const auto& blame = output_->blame(member.slot->rank);
    if (blame && !blame->silent) leaving.insert(blame->rank);
  }
  for (Member& member : members_) {
    if (!leaving.contains(member.slot->rank)) AskToEnd(member, SIGTERM);
  }
  ended_by_us_at_ = loop_->Now();
  SayGraceLater();
  Next(std::min(kLeaving, Seconds(settings_.grace_s)), &Job::EndThoseWhoLeave);
}

void Job::EndThoseWhoLeave() {
  for (Member& member : members_) AskToEnd(member, SIGTERM);
  Next(std::max(ended_by_us_at_ + Seconds(settings_.grace_s) - loop_->Now(), Duration::zero()), &Job::KillAll);
}

void Job::KillAll() {
  phase_ = Phase::kKilling;
  for (Member& member : members_) {
    if (member.ending.over()) continue;
    member.asked = true;
    member.crew->Kill(member.slot->rank);
  }
  Next(LocalCrew::kAfterKill + (remote_ == nullptr ? Duration::zero() : kAgentsTime), &Job::Abandon);
}

void Job::Abandon() {
  constexpr Duration kLookAgain = std::chrono::milliseconds(200);
  if (local_.IsWaitingForCore()) return Next(kLookAgain, &Job::Abandon);
  abandoned_ = true;
}

void Job::Next(Duration wait, void (Job::*call)()) {
  if (timer_) loop_->Cancel(*timer_);
  timer_ = loop_->At(loop_->Now() + wait, [this, call] {
    timer_.reset();
    (this->*call)();
  });
}

bool Job::AllOver() const {
  // Before all were started, those that were not have nothing to end.
  return abandoned_ || std::ranges::all_of(members_, [&](const Member& member) {
           return member.ending.over() || (member.crew == &local_ && member.pid == 0);
         });
}

void Job::SweepUp() {
  if (timer_) loop_->Cancel(*timer_);
  timer_.reset();
  // One that was asked to end with its rank has had its time.
  bool kill = phase_ == Phase::kEnding || phase_ == Phase::kKilling;
  if (remote_ != nullptr && ranks_started_) {
    remote_->Finish(kill);
    const Time limit = loop_->Now() + Seconds(settings_.grace_s) + LocalCrew::kAfterKill + kAgentsTime;
    while (!remote_->Finished() && loop_->Now() < limit) {
      loop_->RunOnce(limit - loop_->Now());
      if (kill || phase_ != Phase::kKilling) continue;
      kill = true;
      remote_->Finish(kill);
    }
  }
  local_.SweepUp(kill, Seconds(settings_.grace_s), [this] { return phase_ == Phase::kKilling; });
  local_.Drain();
}

Report Job::MakeReport() const {
  Report report;
  std::vector<Ending> endings;
  for (const Member& member : members_) {
    endings.push_back(member.ending);
    RankReport one{.slot = *member.slot, .pid = member.pid, .ending = member.ending, .last_lines = {}};
    const Time ended = member.ended_at == Time{} ? over_ : member.ended_at;
    one.ended_after_s = InSeconds(ended - started_);
    report.ranks.push_back(std::move(one));
  }
  report.host_failure = host_failure_;
  report.diagnosis = host_failure_ ? Diagnosis{} : Diagnose(endings);
  std::vector<std::string> last_words;
  for (const Member& member : members_) {
    const auto lines = output_->stderr_tail(member.slot->rank).Last(1);
    last_words.push_back(lines.empty() ? std::string() : lines.back());
  }
  FindAlike(endings, last_words, &report.diagnosis);
  if (const int cause = report.diagnosis.cause; cause >= 0) {
    constexpr size_t kShown = 20;
    report.ranks[cause].last_lines = output_->stderr_tail(cause).Last(kShown);
    report.shown = output_->Shows(cause);
    const auto names_cause = [&](const Member& member) {
      const auto& blame = output_->blame(member.slot->rank);
      return blame && blame->silent && blame->rank == cause;
    };
    const auto witness = std::ranges::find_if(members_, names_cause);
    if (report.diagnosis.silent && witness != members_.end()) {
      report.witness = output_->stderr_tail(witness->slot->rank).Last(kShown);
    }
    report.exit_code = interrupted_by_ == 0 ? report.diagnosis.exit_code : 128 + interrupted_by_;
  } else if (host_failure_) {
    report.exit_code = host_failure_->exit_code;
  } else if (interrupted_by_ != 0 && (!ranks_started_ || std::ranges::any_of(endings, &Ending::failed))) {
    report.exit_code = 128 + interrupted_by_;
  }
  report.interrupted_by = interrupted_by_;
  report.started_at = started_at_;
  report.elapsed_s = InSeconds(over_ - started_);
  report.logs = output_->logs();
  return report;
}

}  // namespace hvd::launch
