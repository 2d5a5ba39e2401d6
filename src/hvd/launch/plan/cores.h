// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the ranks of a host share its cores: by OMP_NUM_THREADS, and, if the user wants that, by binding.
//
// Thread safety: all functions, from any thread.

#include <vector>

#include "hvd/base/result.h"
#include "hvd/launch/plan/environment.h"
#include "hvd/launch/plan/hosts.h"

namespace hvd::launch {

// Sets OMP_NUM_THREADS for a rank of this host, unless the user has or the rank is alone here, and returns the cores
// to bind the rank to: HOROVOD_CORES_PER_RANK of them, or none. Fails if the host has too few.
Result<std::vector<int>> ShareCores(const Slot& slot, Environment* environment);

// For the user: what ShareCores sets for `local_size` ranks of this host; empty: nothing.
std::string DescribeShare(int local_size, const Environment& environment);

}  // namespace hvd::launch
