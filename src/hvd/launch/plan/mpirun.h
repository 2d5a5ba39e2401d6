// SPDX-License-Identifier: Apache-2.0
#pragma once
// horovodrun --mpi: the line by which the mpirun that is installed here starts the job. This program then becomes that
// mpirun.

#include <string>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"
#include "hvd/launch/plan/environment.h"
#include "hvd/launch/plan/hosts.h"
#include "hvd/launch/plan/plan.h"

namespace hvd::launch {

// Those whose flags differ. Intel MPI and MVAPICH start as MPICH does.
enum class MpirunKind { kOpenMpi, kSpectrum, kHydra };

// From what `mpirun --version` prints. kNotFound: none that is known here.
Result<MpirunKind> RecogniseMpirun(std::string_view version);

// The words after "mpirun". Values of variables are not among them, so no secret is.
Result<List> MpirunWords(MpirunKind kind, const Options& options, const std::vector<Host>& hosts, const Plan& plan);

bool UsesMpirun(const Options& options);

// Becomes mpirun, or prints the line for --dry-run. Returns only with an exit code.
int RunMpirun(const std::string& self, const Options& options, const Environment& environment);

}  // namespace hvd::launch
