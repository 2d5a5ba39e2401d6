// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/processes.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <map>
#include <optional>

#include "hvd/launch/parse.h"
#include "hvd/launch/plan.h"
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

std::vector<int> ProcessesOfJob(const std::string& job) {
  const std::string wanted = std::string(kJobVariable) + "=";
  std::vector<int> found;
  for (const int pid : AllProcesses()) {
    const auto text = ReadFile(fmt::format("/proc/{}/environ", pid));
    if (!text) continue;
    for (std::string_view rest = *text; !rest.empty();) {
      const size_t end = std::min(rest.find('\0'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (!line.starts_with(wanted)) continue;
      if (NamesJob(line.substr(wanted.size()), job)) found.push_back(pid);
      break;
    }
  }
  return found;
}

}  // namespace hvd::launch
