// SPDX-License-Identifier: Apache-2.0
#pragma once
// From what the user typed to a file that can be executed.

#include <optional>
#include <string>

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"
#include "hvd/launch/plan/environment.h"

namespace hvd::launch {

struct Command {
  std::string program;
  List arguments;
};

// Looks in PATH, as a shell does, then beside this program, `self`. A Python script that is no program itself gets an
// interpreter in front. kNotFound: there is no such program. kPermissionDenied: there is one that cannot be executed.
Result<Command> ResolveCommand(const List& words, const std::string& self, const Environment& environment);

// The first file of that name in PATH that can be executed.
std::optional<std::string> FindInPath(const std::string& name, const Environment& environment);

// The interpreter beside this program, else the first python3 or python in PATH; kNotFound says what was looked for.
Result<std::string> FindPython(const std::string& self, const Environment& environment);

}  // namespace hvd::launch
