// SPDX-License-Identifier: Apache-2.0
#pragma once
// PMIx by its library, opened at run time: `srun --mpi=pmix`, jsrun, and mpirun of Open MPI where libmpi is missing.

#include <string>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"

namespace hvd::pmi {

// Success if the library can be opened; else why not.
Status ProbePmix();

// As ShareByWire.
Result<std::string> ShareByPmix(int rank, const std::string& key, const std::string& text, Time deadline);

}  // namespace hvd::pmi
