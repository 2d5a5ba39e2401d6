// SPDX-License-Identifier: Apache-2.0
#pragma once
// MPI as this process uses it: initialised once, by whoever comes first, and finalized at a clean exit by us only if it
// was us.
//
// Thread safety: any thread, where MPI was initialised with support for threads.

#include <span>
#include <string>

#include "hvd/base/clock.h"
#include "hvd/mpi/library.h"

namespace hvd::mpi {

// Initialises MPI unless the program has.
Status Begin(Library* library, Threads wanted);

// Gives all ranks of `comm` what its rank 0 says. All call it; bounded by the deadline.
Result<std::string> Share(Library* library, Handle comm, const std::string& text, Time deadline);

}  // namespace hvd::mpi
