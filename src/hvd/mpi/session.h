// SPDX-License-Identifier: Apache-2.0
#pragma once
// MPI as this process uses it: initialised once, by whoever comes first, and finalized at a clean exit by us only if it
// was us.
//
// Thread safety: any thread, where MPI was initialised with support for threads.

#include <functional>
#include <string>

#include "hvd/base/clock.h"
#include "hvd/mpi/library.h"

namespace hvd::mpi {

// Initialises MPI unless the program has.
Status Begin(Library* library, Threads wanted);

// A rank was lost: nobody shall wait for it in MPI_Finalize.
void Distrust();

// Runs `work`, which may wait for other ranks, on a thread, one after the other. Ranks that have the same work give it
// in the same order, so nobody waits for one that waits for another; and MPIs are not good at several such calls at
// once.
void InOrder(std::function<void()> work);

// Gives all ranks of `comm` what its rank 0 says. All call it; bounded by the deadline.
Result<std::string> Share(Library* library, Handle comm, const std::string& text, Time deadline);

}  // namespace hvd::mpi
