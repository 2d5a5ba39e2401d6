// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/job.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <set>

#include "hvd/launch/processes.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

// For the others to say what they saw of a failure.
constexpr Duration kSettle = std::chrono::milliseconds(500);
// For a rank that the others say has left to get through its exit: its code is the one that counts.
constexpr Duration kLeaving = std::chrono::seconds(2);
// For the kernel to end what was killed. A process that is stuck in a device is left to it.
constexpr Duration kAfterKill = std::chrono::seconds(5);
constexpr size_t kReadAtOnce = 64 << 10;
constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kPassedOn[] = {SIGUSR1, SIGUSR2};

sigset_t Handled() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : kEndingSignals) sigaddset(&set, signal);
  for (const int signal : kPassedOn) sigaddset(&set, signal);
  return set;
}

}  // namespace

sigset_t Job::BlockSignals() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // a parent may have left it ignored, and then nobody could wait
  const sigset_t handled = Handled();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &handled, &before);
  return before;
}

Job::Job(Settings settings, const Plan& plan, Warden* warden, Output* output, loop::Loop* loop)
    : settings_(std::move(settings)), plan_(plan), warden_(warden), output_(output), loop_(loop) {
  for (const Slot& slot : plan_.slots) members_.push_back({.slot = &slot, .child = {}, .ending = {}});
}

Job::~Job() {
  for (const Member& member : members_) {
    for (const net::Fd* fd : {&member.child.out, &member.child.err}) {
      if (*fd) loop_->Unwatch(fd->get());
    }
  }
  for (const net::Fd* fd : {&signals_, &failures_in_}) {
    if (*fd) loop_->Unwatch(fd->get());
  }
}

Status Job::Run() {
  started_ = loop_->Now();
  started_at_ = std::time(nullptr);
  HVD_RETURN_IF_ERROR(WatchEvents());
  const Status started = StartAll();
  if (!started) {
    KillAll();
  } else if (settings_.on_started) {
    settings_.on_started(std::chrono::duration<double>(loop_->Now() - started_).count());
  }
  while (!AllOver()) loop_->Turn(Duration(-1));
  over_ = loop_->Now();
  SweepUp();
  for (Member& member : members_) {
    if (member.child.pid == 0) continue;
    Drain(member);
    output_->End(member.slot->rank);
    member.ending.blames = output_->blame(member.slot->rank);
  }
  return started;
}

Status Job::WatchEvents() {
  const sigset_t handled = Handled();
  signals_.Reset(::signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals_) return Fail(Code::kResourceExhausted, "signalfd: {}", net::ErrnoText(errno));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return Fail(Code::kResourceExhausted, "no pipe: {}", net::ErrnoText(errno));
  }
  failures_in_.Reset(ends[0]);
  failures_out_.Reset(ends[1]);
  HVD_RETURN_IF_ERROR(loop_->Watch(signals_.get(), EPOLLIN, [this](uint32_t) { OnSignals(); }));
  return loop_->Watch(failures_in_.get(), EPOLLIN, [this](uint32_t) { OnExecFailure(); });
}

Status Job::StartAll() {
  for (Member& member : members_) {
    const Slot& slot = *member.slot;
    const Environment environment = RankEnvironment(plan_, slot, settings_.store, settings_.name);
    HVD_ASSIGN_OR_RETURN(member.child, Spawn(slot.rank, plan_.program, plan_.arguments, environment.Lines(),
                                             settings_.inherited, failures_out_.get()));
    warden_->Watch(member.child.pid);
    output_->Begin(slot, member.child.pid);
    for (const Stream stream : {Stream::kOut, Stream::kErr}) {
      const net::Fd& fd = stream == Stream::kOut ? member.child.out : member.child.err;
      HVD_RETURN_IF_ERROR(loop_->Watch(fd.get(), EPOLLIN,
                                       [this, &member, stream](uint32_t) { ReadFrom(member, stream, kReadAtOnce); }));
    }
  }
  return {};
}

void Job::ReadFrom(Member& member, Stream stream, size_t most) {
  net::Fd& fd = stream == Stream::kOut ? member.child.out : member.child.err;
  static char buffer[kReadAtOnce];
  for (size_t total = 0; fd && total < most;) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // nothing more for now
    if (count == 0) {
      loop_->Unwatch(fd.get());
      fd.Reset();
      return;
    }
    total += static_cast<size_t>(count);
    output_->Take(member.slot->rank, stream, {buffer, static_cast<size_t>(count)}, loop_->Now());
  }
}

void Job::Drain(Member& member) {
  // What a pipe can hold; its children may go on writing.
  constexpr size_t kPipe = 1 << 20;
  ReadFrom(member, Stream::kOut, kPipe);
  ReadFrom(member, Stream::kErr, kPipe);
}

void Job::OnSignals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (std::ranges::count(kPassedOn, signal) > 0) {
      // To the ranks alone: what they started may not expect it, and would die of it.
      for (const Member& member : members_) {
        if (member.child.pid != 0 && !member.ending.over()) ::kill(member.child.pid, signal);
      }
      continue;
    }
    if (phase_ == Phase::kRunning) {
      interrupted_by_ = signal;
      EndAll(signal);
    } else {
      KillAll();  // asked twice, or failing anyway
    }
  }
  Reap();
}

void Job::OnExecFailure() {
  ExecFailure failure{};
  while (::read(failures_in_.get(), &failure, sizeof failure) == sizeof failure) {
    members_[failure.rank].ending.exec_error = net::ErrnoText(failure.error);
  }
}

void Job::Reap() {
  while (true) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    // Others are the warden, and what ranks left behind: as their nearest living ancestor we inherit it.
    const auto member = std::ranges::find_if(members_, [&](const Member& one) { return one.child.pid == pid; });
    if (member != members_.end() && !member->ending.over()) OnEnd(*member, status);
  }
}

void Job::OnEnd(Member& member, int status) {
  OnExecFailure();
  Drain(member);
  Ending& ending = member.ending;
  if (WIFSIGNALED(status)) {
    ending.signal = WTERMSIG(status);
  } else {
    ending.code = WEXITSTATUS(status);
  }
  ending.order = ended_++;
  // It may have crashed all by itself after it was asked to end.
  ending.told = member.last_sent != 0 && (ending.signal == 0 || ending.signal == member.last_sent);
  member.ended_at = loop_->Now();
  if (phase_ != Phase::kRunning || !ending.failed()) return;
  phase_ = Phase::kSettling;
  Next(kSettle, &Job::EndBecauseOfFailure);
}

void Job::EndAll(int signal) {
  phase_ = Phase::kEnding;
  for (Member& member : members_) AskToEnd(member, signal);
  Next(settings_.grace, &Job::KillAll);
}

void Job::AskToEnd(Member& member, int signal) {
  if (member.child.pid == 0 || member.ending.over() || member.last_sent != 0) return;
  member.last_sent = IsStopped(member.child.pid) ? SIGKILL : signal;
  ::kill(-member.child.pid, member.last_sent);
}

void Job::EndBecauseOfFailure() {
  phase_ = Phase::kEnding;
  std::set<int> leaving;
  for (const Member& member : members_) {
    const auto& blame = output_->blame(member.slot->rank);
    if (blame && !blame->silent) leaving.insert(blame->rank);
  }
  for (Member& member : members_) {
    if (!leaving.contains(member.slot->rank)) AskToEnd(member, SIGTERM);
  }
  ended_by_us_at_ = loop_->Now();
  Next(std::min(kLeaving, settings_.grace), &Job::EndThoseWhoLeave);
}

void Job::EndThoseWhoLeave() {
  for (Member& member : members_) AskToEnd(member, SIGTERM);
  Next(std::max(ended_by_us_at_ + settings_.grace - loop_->Now(), Duration::zero()), &Job::KillAll);
}

void Job::KillAll() {
  phase_ = Phase::kKilling;
  for (Member& member : members_) {
    if (member.child.pid == 0 || member.ending.over()) continue;
    member.last_sent = SIGKILL;
    ::kill(-member.child.pid, SIGKILL);
  }
  Next(kAfterKill, &Job::Abandon);
}

void Job::Next(Duration wait, void (Job::*call)()) {
  if (timer_) loop_->Cancel(*timer_);
  timer_ = loop_->At(loop_->Now() + wait, [this, call] {
    timer_.reset();
    (this->*call)();
  });
}

bool Job::AllOver() const {
  return abandoned_ || std::ranges::all_of(members_, [](const Member& member) {
           return member.child.pid == 0 || member.ending.over();
         });
}

void Job::SweepUp() {
  if (timer_) loop_->Cancel(*timer_);
  timer_.reset();
  const auto left_behind = [this] {
    std::vector<int> pids = Descendants();
    std::erase(pids, warden_->pid());
    return pids;
  };
  // One that was asked to end with its rank has had its time.
  bool kill = phase_ == Phase::kEnding || phase_ == Phase::kKilling;
  Time limit = loop_->Now() + (kill ? kAfterKill : settings_.grace);
  std::set<int> asked;
  for (auto pids = left_behind(); !pids.empty(); pids = left_behind()) {
    if (loop_->Now() >= limit || (!kill && phase_ == Phase::kKilling)) {
      if (std::exchange(kill, true)) return;
      limit = loop_->Now() + kAfterKill;
    }
    for (const int pid : pids) {
      if (kill || IsStopped(pid)) {
        ::kill(pid, SIGKILL);
      } else if (asked.insert(pid).second) {
        ::kill(pid, SIGTERM);
      }
    }
    // Those whose parents end come to us, and their ends wake this up; others are looked for now and then.
    loop_->Turn(std::clamp<Duration>(limit - loop_->Now(), Duration::zero(), std::chrono::milliseconds(100)));
  }
}

Report Job::MakeReport() const {
  Report report;
  std::vector<Ending> endings;
  for (const Member& member : members_) {
    endings.push_back(member.ending);
    RankReport one{.slot = *member.slot, .pid = member.child.pid, .ending = member.ending, .last_lines = {}};
    const Time ended = member.ended_at == Time{} ? over_ : member.ended_at;
    one.ended_after_s = std::chrono::duration<double>(ended - started_).count();
    report.ranks.push_back(std::move(one));
  }
  report.diagnosis = Diagnose(endings);
  if (const int cause = report.diagnosis.cause; cause >= 0) {
    constexpr size_t kShown = 20;
    report.ranks[cause].last_lines = output_->stderr_tail(cause).Last(kShown);
    report.exit_code = interrupted_by_ == 0 ? report.diagnosis.exit_code : 128 + interrupted_by_;
  } else if (interrupted_by_ != 0 && std::ranges::any_of(endings, &Ending::failed)) {
    report.exit_code = 128 + interrupted_by_;
  }
  report.interrupted_by = interrupted_by_;
  report.started_at = started_at_;
  report.elapsed_s = std::chrono::duration<double>(over_ - started_).count();
  report.logs = output_->logs();
  return report;
}

}  // namespace hvd::launch
