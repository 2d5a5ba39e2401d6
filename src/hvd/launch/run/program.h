// SPDX-License-Identifier: Apache-2.0
#pragma once
// horovodrun from command line to exit code.

#include <string>
#include <vector>

#include "hvd/launch/plan/environment.h"

namespace hvd::launch {

// `self` is the path of the program. Must be called on the main thread, before any other is started.
int RunProgram(const std::string& self, const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace hvd::launch
