// SPDX-License-Identifier: Apache-2.0
#pragma once
// PMI version 1 by its wire protocol: lines over a descriptor that the launcher left open (PMI_FD). mpirun of MPICH and
// `srun --mpi=pmi2` speak it. No library is needed.

#include <string>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"

namespace hvd::pmi {

// Gives every rank of the job what rank 0 says under `key`, which is new each time. All ranks call it; it blocks until
// all have, or until the deadline. Neither holds white space or '='.
Result<std::string> ShareByWire(int fd, int rank, const std::string& key, const std::string& text, Time deadline);

}  // namespace hvd::pmi
