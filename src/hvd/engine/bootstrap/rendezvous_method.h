// SPDX-License-Identifier: Apache-2.0
#pragma once
// Method by which the ranks of this job find each other: a configured rendezvous address, or one that they exchange
// through MPI, PMIx or PMI.

#include <span>
#include <string>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/mpi/library.h"

namespace hvd::engine::bootstrap {

struct RendezvousMethod {
  enum class Kind { kAlone, kAddress, kMpi, kPmix, kPmi };
  Kind kind = Kind::kAlone;
  std::string why;  // one sentence: what was chosen, and by which variable
  // Set where MPI is in use, to start or for operations.
  mpi::Library* mpi = nullptr;
  mpi::Handle comm = 0;  // its ranks are the job's
};

// What a caller of init gives besides the environment.
struct InitArguments {
  const void* mpi_comm = nullptr;   // an initialized MPI's communicator, whose processes are the job
  std::span<const int> comm_ranks;  // only these ranks of what was started are the job; empty: all
};

// Completes rank, size and address of `config`, and initializes MPI if that is the method.
Result<RendezvousMethod> ChooseRendezvousMethod(Config* config, const InitArguments& given);

}  // namespace hvd::engine::bootstrap
