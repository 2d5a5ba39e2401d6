// SPDX-License-Identifier: Apache-2.0
#pragma once
// Operations as rounds: in each, bytes are packed into a buffer, moved by one MPI call (or two), and unpacked. MPI
// reads and writes these buffers alone, never the user's memory.
//
// Thread safety: call with the progress token.

#include <memory>
#include <vector>

#include "hvd/comm/mpi/communicator.h"

namespace hvd::comm::mpi {

// Begins MPI's calls for one kind of operation.
class Steps {
 public:
  virtual ~Steps() = default;
  // The next call of this operation, its request in *request; false: there is none, the operation is over. Called again
  // when that call is over, and unpacks what it brought first.
  virtual Result<bool> Next(::hvd::mpi::Handle comm, ::hvd::mpi::Handle* request) = 0;
};

std::unique_ptr<Steps> MakeSteps(const Options& options, const Work* work);

}  // namespace hvd::comm::mpi
