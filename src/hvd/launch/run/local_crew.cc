// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/local_crew.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "hvd/launch/plan/cores.h"
#include "hvd/launch/plan/heap.h"
#include "hvd/launch/run/processes.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

constexpr size_t kReadAtOnce = 64 << 10;

}  // namespace

LocalCrew::LocalCrew(const Inherited& inherited, Warden* warden, loop::Loop* loop, CrewEvents events)
    : inherited_(inherited), warden_(warden), loop_(loop), events_(std::move(events)) {}

LocalCrew::~LocalCrew() {
  for (const auto& [rank, member] : members_) {
    for (const net::Fd* fd : {&member.child.out, &member.child.err}) {
      if (*fd) loop_->Unwatch(fd->get());
    }
  }
  if (failures_in_) loop_->Unwatch(failures_in_.get());
}

Status LocalCrew::Start(const Plan& plan, const std::vector<Slot>& slots, const RankPlace& place) {
  if (!failures_in_) HVD_RETURN_IF_ERROR(OpenFailures());
  for (const Slot& slot : slots) {
    Environment environment = RankEnvironment(plan, slot, place);
    SpawnOptions options{.terminal = place.debugged == slot.rank};
    HVD_ASSIGN_OR_RETURN(options.cores, ShareCores(slot, &environment));
    HVD_RETURN_IF_ERROR(PreloadHeap(&environment));
    HVD_ASSIGN_OR_RETURN(Child child, Spawn(slot.key(), plan.program, plan.arguments, environment.Lines(), inherited_,
                                            failures_out_.get(), options));
    warden_->Watch(child.pid);
    const int pid = child.pid;
    Member& member = members_[slot.key()];
    member.rank = slot.key();
    member.child = std::move(child);
    events_.started(slot.key(), pid);
    HVD_RETURN_IF_ERROR(Watch(member, Stream::kOut));
    HVD_RETURN_IF_ERROR(Watch(member, Stream::kErr));
  }
  return {};
}

Status LocalCrew::OpenFailures() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return Fail(Code::kResourceExhausted, "no pipe: {}", net::ErrnoText(errno));
  }
  failures_in_.Reset(ends[0]);
  failures_out_.Reset(ends[1]);
  return loop_->Watch(failures_in_.get(), EPOLLIN, [this](uint32_t) { OnExecFailure(); });
}

Status LocalCrew::Watch(Member& member, Stream stream) {
  const net::Fd& fd = stream == Stream::kOut ? member.child.out : member.child.err;
  return loop_->Watch(fd.get(), EPOLLIN, [this, &member, stream](uint32_t) { ReadFrom(member, stream, kReadAtOnce); });
}

void LocalCrew::PauseOutput(bool pause) {
  if (std::exchange(paused_, pause) == pause) return;
  for (auto& [rank, member] : members_) {
    for (const net::Fd* fd : {&member.child.out, &member.child.err}) {
      if (*fd) (void)loop_->Rearm(fd->get(), pause ? 0 : static_cast<uint32_t>(EPOLLIN));
    }
  }
}

void LocalCrew::ReadFrom(Member& member, Stream stream, size_t most) {
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
    events_.output(member.rank, stream, {buffer, static_cast<size_t>(count)});
  }
}

void LocalCrew::Drain(Member& member) {
  // What a pipe can hold; its children may go on writing.
  constexpr size_t kPipe = 1 << 20;
  ReadFrom(member, Stream::kOut, kPipe);
  ReadFrom(member, Stream::kErr, kPipe);
}

void LocalCrew::Drain() {
  for (auto& [rank, member] : members_) Drain(member);
}

LocalCrew::Member* LocalCrew::Running(int rank) {
  const auto found = members_.find(rank);
  return found == members_.end() || found->second.over ? nullptr : &found->second;
}

void LocalCrew::AskToEnd(int rank, int signal) {
  Member* member = Running(rank);
  if (member == nullptr || member->last_sent != 0) return;
  member->asked_by = member->last_sent = IsStopped(member->child.pid) ? SIGKILL : signal;
  ::kill(-member->child.pid, member->last_sent);
}

void LocalCrew::Kill(int rank) {
  Member* member = Running(rank);
  if (member == nullptr) return;
  if (IsDumpingCore(member->child.pid)) {
    // It has ended already. Killed now, it would leave half a core file and the wrong signal.
    if (!member->dumping_until) member->dumping_until = loop_->Now() + kCoreDump;
    if (loop_->Now() < *member->dumping_until) return;
  }
  member->last_sent = SIGKILL;
  ::kill(-member->child.pid, SIGKILL);
}

bool LocalCrew::IsWaitingForCore() {
  bool waiting = false;
  for (auto& [rank, member] : members_) {
    if (member.over || !member.dumping_until) continue;
    Kill(rank);
    waiting |= member.last_sent != SIGKILL;
  }
  return waiting;
}

void LocalCrew::PassOn(int rank, int signal) {
  const Member* member = Running(rank);
  if (member == nullptr) return;
  if (EndsBy(member->child.pid, signal)) return events_.unhandled(rank, signal);
  ::kill(member->child.pid, signal);
}

void LocalCrew::KillAll() {
  for (const auto& [rank, member] : members_) Kill(rank);
}

void LocalCrew::Forget(int rank) {
  const auto found = members_.find(rank);
  if (found == members_.end() || !found->second.over || found->second.group_gone) return;
  ::kill(-found->second.child.pid, SIGKILL);
  warden_->Forget(found->second.child.pid);
}

bool LocalCrew::AllOver() const {
  return std::ranges::all_of(members_, [](const auto& one) { return one.second.over; });
}

void LocalCrew::OnExecFailure() {
  ExecFailure failure{};
  while (::read(failures_in_.get(), &failure, sizeof failure) == sizeof failure) {
    members_.at(failure.rank).exec_error = net::ErrnoText(failure.error);
  }
}

void LocalCrew::Reap(const std::function<void(int pid, int status)>& other) {
  while (true) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return ForgetEmptyGroups();
    // Others are our own helpers, and what ranks left behind: as their nearest living ancestor we inherit it.
    const auto found = std::ranges::find_if(members_, [&](const auto& one) { return one.second.child.pid == pid; });
    if (found != members_.end() && !found->second.over) {
      OnEnd(found->second, status);
    } else if (other) {
      other(pid, status);
    }
  }
}

void LocalCrew::ForgetEmptyGroups() {
  for (auto& [rank, member] : members_) {
    if (!member.over || member.group_gone || ::kill(-member.child.pid, 0) == 0 || errno != ESRCH) continue;
    member.group_gone = true;
    warden_->Forget(member.child.pid);
  }
}

void LocalCrew::OnEnd(Member& member, int status) {
  OnExecFailure();
  Drain(member);
  member.over = true;
  Ending ending;
  if (WIFSIGNALED(status)) {
    ending.signal = WTERMSIG(status);
  } else {
    ending.code = WEXITSTATUS(status);
  }
  // It may have crashed all by itself after it was asked to end. SIGKILL may come while it dies of the first signal.
  ending.told = member.last_sent != 0 &&
                (ending.signal == 0 || ending.signal == member.asked_by || ending.signal == member.last_sent);
  ending.exec_error = member.exec_error;
  events_.ended(member.rank, std::move(ending));
}

void LocalCrew::SweepUp(bool kill, Duration grace, const std::function<bool()>& hurry) {
  const auto left_behind = [&] {
    std::vector<int> pids = Descendants();
    std::erase(pids, warden_->pid());
    return pids;
  };
  Time limit = loop_->Now() + (kill ? kAfterKill : grace);
  std::set<int> asked;
  for (auto pids = left_behind(); !pids.empty(); pids = left_behind()) {
    if (loop_->Now() >= limit || (!kill && hurry())) {
      if (std::exchange(kill, true)) return;
      limit = loop_->Now() + kAfterKill;
    }
    for (const int pid : pids) {
      if (kill || IsStopped(pid)) {
        SignalDescendant(pid, SIGKILL);
      } else if (asked.insert(pid).second) {
        SignalDescendant(pid, SIGTERM);
      }
    }
    // Those whose parents end come to us, and their ends wake this up; others are looked for now and then.
    loop_->RunOnce(std::clamp<Duration>(limit - loop_->Now(), Duration::zero(), std::chrono::milliseconds(100)));
  }
}

}  // namespace hvd::launch
