// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/processes.h"

#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <optional>

#include "hvd/launch/cli/parse.h"
#include "hvd/launch/plan/plan.h"
#include "hvd/net/fd.h"
#include "hvd/topology/proc.h"

namespace hvd::launch {
namespace {

struct State {
  char state = 'X';
  int parent = 0;
};

std::optional<State> StateOf(int pid) {
  const auto text = topology::ReadSmallFile(fmt::format("/proc/{}/stat", pid));
  if (!text) return std::nullopt;
  // "pid (name) S ppid ...", where the name may hold anything.
  const size_t end = text->rfind(')');
  if (end == std::string::npos || end + 4 >= text->size()) return std::nullopt;
  State state;
  state.state = (*text)[end + 2];
  const char* at = text->data() + end + 4;
  std::from_chars(at, text->data() + text->size(), state.parent);
  return state;
}

// The number after a key at the start of a line of /proc/PID/status; 0 if there is none.
uint64_t StatusNumber(int pid, std::string_view key, int base) {
  const auto text = topology::ReadSmallFile(fmt::format("/proc/{}/status", pid));
  if (!text) return 0;
  const size_t line = text->find(fmt::format("\n{}", key));
  if (line == std::string::npos) return 0;
  const size_t begin = text->find_first_not_of(" \t", line + 1 + key.size());
  uint64_t number = 0;
  if (begin != std::string::npos) std::from_chars(text->data() + begin, text->data() + text->size(), number, base);
  return number;
}

std::vector<int> AllProcesses() {
  std::vector<int> pids;
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return pids;
  while (const dirent* entry = ::readdir(proc)) {
    const std::string_view name = entry->d_name;
    int pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size()) pids.push_back(pid);
  }
  ::closedir(proc);
  return pids;
}

bool NamesJob(std::string_view value, const std::string& job) {
  while (!value.empty()) {
    const size_t slash = std::min(value.find('/'), value.size());
    if (value.substr(0, slash) == job) return true;
    value.remove_prefix(std::min(slash + 1, value.size()));
  }
  return false;
}

bool IsOfJob(int pid, const std::string& job) {
  const auto text = ReadFile(fmt::format("/proc/{}/environ", pid));
  if (!text) return false;
  const std::string wanted = std::string(kJobVariable) + "=";
  for (std::string_view rest = *text; !rest.empty();) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.starts_with(wanted)) return NamesJob(line.substr(wanted.size()), job);
  }
  return false;
}

bool IsDescendant(int pid) {
  for (auto state = StateOf(pid); state && state->parent > 0; state = StateOf(state->parent)) {
    if (state->parent == ::getpid()) return true;
  }
  return false;
}

}  // namespace

std::vector<int> Descendants() {
  std::multimap<int, int> children;
  for (const int pid : AllProcesses()) {
    const auto state = StateOf(pid);
    if (state && state->state != 'Z' && state->state != 'X') children.emplace(state->parent, pid);
  }
  std::vector<int> found{static_cast<int>(::getpid())};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

bool IsStopped(int pid) {
  const auto state = StateOf(pid);
  return state && (state->state == 'T' || state->state == 't');
}

bool EndsBy(int pid, int signal) {
  const uint64_t bit = uint64_t{1} << (signal - 1);
  return ((StatusNumber(pid, "SigCgt:", 16) | StatusNumber(pid, "SigIgn:", 16)) & bit) == 0;
}

bool IsDumpingCore(int pid) { return StatusNumber(pid, "CoreDumping:", 10) == 1; }

std::vector<int> ProcessesOfJob(const std::string& job) {
  std::vector<int> found;
  for (const int pid : AllProcesses()) {
    if (IsOfJob(pid, job)) found.push_back(pid);
  }
  return found;
}

bool SignalDescendant(int pid, int signal) {
  const net::Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process && errno == ENOSYS) return ::kill(pid, signal) == 0;
  return process && IsDescendant(pid) && ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0;
}

bool KillOfJob(int pid, const std::string& job) {
  const net::Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  // Kernels before 5.3 have no pidfd.
  if (!process && errno == ENOSYS) return ::kill(pid, SIGKILL) == 0;
  return process && IsOfJob(pid, job) && ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0;
}

}  // namespace hvd::launch
