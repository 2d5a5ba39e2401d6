// SPDX-License-Identifier: Apache-2.0
#pragma once
// MPI as this process uses it: initialised once, by whoever comes first, and finalized at a clean exit by us only if it
// was us.
//
// Thread safety: any thread, where MPI was initialised with support for threads.

#include <functional>
#include <span>
#include <string>

#include "hvd/base/clock.h"
#include "hvd/mpi/library.h"

namespace hvd::mpi {

// Initialises MPI unless the program has. MPI_Init waits for every process that the launcher started and knows no limit
// of its own, so it runs on a thread: kDeadlineExceeded leaves it there, and the next call goes on waiting for it.
Status Begin(Library* library, Threads wanted, Time deadline);

// A rank was lost: nobody shall wait for it in MPI_Finalize.
void Distrust();

// A rank has left while this one works. If this one fails now, it is probably because of that.
void OthersLeft();

// Runs `work`, which may wait for other ranks, on a thread, one after the other. Ranks that have the same work give it
// in the same order, so nobody waits for one that waits for another; and MPIs are not good at several such calls at
// once.
void InOrder(std::function<void()> work);

// Library::MakeComm by that thread, so that the wait for the others is bounded.
Result<Handle> MakeComm(Library* library, Handle comm, std::span<const int> ranks, int tag, Time deadline);

// Gives all ranks of `comm` what its rank 0 says. All call it; bounded by the deadline.
Result<std::string> Share(Library* library, Handle comm, const std::string& text, Time deadline);

}  // namespace hvd::mpi
