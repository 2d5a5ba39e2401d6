// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/process.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hvd/topology/proc.h"
#include "hvd/topology/process.h"

namespace hvd::transport::shm {
namespace {

#ifndef SYS_pidfd_open
constexpr long kPidfdOpen = 434, kPidfdSendSignal = 424;  // the same on every architecture
#else
constexpr long kPidfdOpen = SYS_pidfd_open, kPidfdSendSignal = SYS_pidfd_send_signal;
#endif

uint64_t PidNamespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

bool SameProcess(const Member& member) {
  return member.start_time != 0 && member.pid_namespace != 0 && member.pid_namespace == PidNamespace() &&
         topology::StartTimeOf(member.pid) == member.start_time;
}

}  // namespace

Member DescribeSelf(int local, Rank rank) {
  Member member;
  member.local = local;
  member.rank = rank;
  member.pid = ::getpid();
  member.start_time = topology::StartTimeOf(member.pid);
  member.pid_namespace = PidNamespace();
  return member;
}

Fd OpenSelf() { return Fd(static_cast<int>(::syscall(kPidfdOpen, ::getpid(), 0))); }

bool KillProcess(const LocalRank& victim) {
  if (victim.pidfd && ::syscall(kPidfdSendSignal, victim.pidfd.get(), SIGKILL, nullptr, 0) == 0) return true;
  return SameProcess(victim.member) && ::kill(victim.member.pid, SIGKILL) == 0;
}

bool DumpsCore(const LocalRank& victim) {
  if (!SameProcess(victim.member)) return false;
  return topology::ReadSmallFile(fmt::format("/proc/{}/status", victim.member.pid))
             .value_or("")
             .find("CoreDumping:\t1") != std::string::npos;
}

}  // namespace hvd::transport::shm
