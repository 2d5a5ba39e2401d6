// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "hvd/launch/plan/paths.h"
#include "hvd/net/fd.h"

namespace hvd::launch {
namespace {

bool CanRun(const std::string& path) { return IsFile(path) && ::access(path.c_str(), X_OK) == 0; }

// Begins as scripts do that name their interpreter.
bool NamesInterpreter(const std::string& path) {
  const net::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char start[2];
  return fd && ::read(fd.get(), start, 2) == 2 && start[0] == '#' && start[1] == '!';
}

// Where a program of the same installation would lie; empty where that cannot be told.
std::string Beside(const std::string& self, const std::string& name) {
  return self.find('/') == std::string::npos ? "" : self.substr(0, self.rfind('/') + 1) + name;
}

// What to do if a command that is not there was written for a shell.
std::string ShellHint(const std::string& name) {
  if (name.find(' ') != std::string::npos) return "; leave out the quotes around the whole command";
  if (name.find('=') < name.find('/')) return fmt::format("; to set a variable for the ranks, write -x {}", name);
  return "";
}

}  // namespace

std::optional<std::string> FindInPath(const std::string& name, const Environment& environment) {
  const std::string path = environment.Get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  for (std::string_view rest = path;;) {
    const size_t colon = rest.find(':');
    std::string candidate(rest.substr(0, colon));
    candidate += candidate.empty() ? "./" + name : "/" + name;
    if (CanRun(candidate)) return candidate;
    if (colon == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(colon + 1);
  }
}

Result<std::string> FindPython(const std::string& self, const Environment& environment) {
  const std::string beside = Beside(self, "python");
  if (CanRun(beside)) return beside;
  for (const char* name : {"python3", "python"}) {
    if (auto found = FindInPath(name, environment)) return *found;
  }
  return Fail(Code::kNotFound, "no Python interpreter: neither {} nor python3 in PATH", beside);
}

Result<Command> ResolveCommand(const List& words, const std::string& self, const Environment& environment) {
  const std::string& name = words[0];
  const bool is_path = name.find('/') != std::string::npos;
  if (name.ends_with(".py") && IsFile(name) && !(CanRun(name) && NamesInterpreter(name))) {
    HVD_ASSIGN_OR_RETURN(const std::string python, FindPython(self, environment));
    List arguments{python};
    arguments.insert(arguments.end(), words.begin(), words.end());
    return Command{python, arguments};
  }
  if (is_path || (name.ends_with(".py") && CanRun(name))) {
    const std::string path = is_path ? name : "./" + name;
    if (CanRun(path)) return Command{path, words};
    if (IsFolder(path)) return Fail(Code::kPermissionDenied, "{}: this is a folder, not a program", name);
    if (!IsFile(path)) return Fail(Code::kNotFound, "{}: there is no such program{}", name, ShellHint(name));
    return Fail(Code::kPermissionDenied, "{}: it may not be executed; chmod +x it, or name its interpreter", name);
  }
  if (const auto found = FindInPath(name, environment)) return Command{*found, words};
  // What came with this program, hvd_perf above all, is there without its folder in PATH.
  if (const std::string beside = Beside(self, name); CanRun(beside)) return Command{beside, words};
  if (IsFile(name)) {
    return Fail(Code::kNotFound, "{}: not found in PATH; there is a file of that name here: say ./{}", name, name);
  }
  return Fail(Code::kNotFound, "{}: there is no such program in PATH{}{}", name,
              name.ends_with(".py") ? ", and no such script here" : "", ShellHint(name));
}

}  // namespace hvd::launch
