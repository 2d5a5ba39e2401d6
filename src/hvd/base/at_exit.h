// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a process that was started by a launcher owes it at the end: to say goodbye where all went well, and otherwise
// not to wait for anybody, so that the launcher notices and ends the others.

#include <functional>

namespace hvd {

// Runs `work` with the exit status when this process exits: last registered, first run, after what atexit got later.
// Not in children that were forked after this.
void AtExit(std::function<void(int status)> work);

}  // namespace hvd
