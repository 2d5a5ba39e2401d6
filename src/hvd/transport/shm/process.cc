// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string>
#include <string_view>

namespace hvd::transport::shm {
namespace {

#ifndef SYS_pidfd_open
constexpr long kPidfdOpen = 434, kPidfdSendSignal = 424;  // the same on every architecture
#else
constexpr long kPidfdOpen = SYS_pidfd_open, kPidfdSendSignal = SYS_pidfd_send_signal;
#endif

std::string ReadFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::array<char, 4096> text;
  const ssize_t got = ::read(fd, text.data(), text.size());
  ::close(fd);
  return got > 0 ? std::string(text.data(), static_cast<size_t>(got)) : std::string();
}

// Field 22 of /proc/PID/stat; 0 if unknown. Fields are counted from the last ')': the name before it may hold anything.
uint64_t StartTime(int pid) {
  const std::string text = ReadFile(fmt::format("/proc/{}/stat", pid));
  size_t at = text.rfind(')');
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = text.find(' ', at + 1);
  uint64_t ticks = 0;
  if (at != std::string::npos) std::from_chars(text.data() + at + 1, text.data() + text.size(), ticks);
  return ticks;
}

uint64_t PidNamespace() {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

bool SameProcess(const Member& member) {
  return member.start_time != 0 && member.pid_namespace != 0 && member.pid_namespace == PidNamespace() &&
         StartTime(member.pid) == member.start_time;
}

}  // namespace

Member DescribeSelf(int local, Rank rank) {
  Member member;
  member.local = local;
  member.rank = rank;
  member.pid = ::getpid();
  member.start_time = StartTime(member.pid);
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
  return ReadFile(fmt::format("/proc/{}/status", victim.member.pid)).find("CoreDumping:\t1") != std::string::npos;
}

}  // namespace hvd::transport::shm
