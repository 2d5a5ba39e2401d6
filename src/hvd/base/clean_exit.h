// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a process that was started by a launcher owes it at the end: to say goodbye, but only where all went well. A
// process that fails says nothing, so that the launcher notices and ends the others instead of having them all wait for
// each other.

#include <functional>

namespace hvd {

// Runs `work` when this process exits with status 0: last registered, first run, after what atexit got later.
void AtCleanExit(std::function<void()> work);

}  // namespace hvd
