// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the ranks of this job come together: at an address that somebody gave, or introduced by what started them.

#include <span>
#include <string>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/mpi/library.h"

namespace hvd::engine {

struct Way {
  enum class Kind { kAlone, kAddress, kMpi, kPmix, kPmi };
  Kind kind = Kind::kAlone;
  std::string why;  // one sentence: what was chosen and what told
  // Set where MPI is in use, to start or for operations.
  mpi::Library* mpi = nullptr;
  mpi::Handle comm = 0;  // its ranks are the job's
};

// What a caller of init gives besides the environment.
struct Given {
  const void* mpi_comm = nullptr;   // an initialised MPI's communicator, whose processes are the job
  std::span<const int> comm_ranks;  // only these ranks of what was started are the job; empty: all
};

// Completes rank, size and address of `config` and initialises MPI where that is the way.
Result<Way> ChooseWay(Config* config, const Given& given);

}  // namespace hvd::engine
