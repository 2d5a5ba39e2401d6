// SPDX-License-Identifier: Apache-2.0
#pragma once
// The command line, and the config file that it names, become Options. Nothing is started and nothing is written.

#include <functional>
#include <string>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"

namespace hvd::launch {

// Gives the content of a file; injected so that tests need none.
using FileReader = std::function<Result<std::string>(const std::string& path)>;

// `arguments` without the program's name. What stands on the command line overrides the config file. The first
// argument that is no flag begins the command. An error is one line for the user.
Result<Options> Parse(const std::vector<std::string>& arguments, const FileReader& read);

// At most 16 MiB of a file.
Result<std::string> ReadFile(const std::string& path);

// What --help prints.
std::string HelpText();
// The table of flags as JSON, for --help --json.
std::string FlagsJson();

}  // namespace hvd::launch
