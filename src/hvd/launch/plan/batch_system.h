// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hosts that a batch system has given to this job: Slurm, PBS or LSF. Pure but for the reading of PBS_NODEFILE.

#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"
#include "hvd/launch/cli/parse.h"
#include "hvd/launch/plan/environment.h"
#include "hvd/launch/plan/hosts.h"

namespace hvd::launch {

// If the user names no hosts, takes those of SLURM_JOB_NODELIST, PBS_NODEFILE or LSB_HOSTS, the first that is set, as
// if they stood behind -H. Returns a line for the user that says so; it is empty if nothing was taken. Takes nothing
//   - if this machine is the only one: all ranks run here anyway, and slots are no limit;
//   - inside a step of srun and inside a rank of another job: what such a process starts stays in its place;
//   - if mpirun starts the ranks: it asks the batch system itself.
Result<std::string> TakeBatchHosts(const Environment& environment, const FileReader& read, const IsHere& is_here,
                                   Options* options);

// "node[1-3,7],login" as Slurm writes it: node1, node2, node3, node7, login. Several brackets multiply.
Result<std::vector<std::string>> ExpandNodeList(std::string_view text);

// "2(x3),1" as Slurm writes it: 2, 2, 2, 1.
Result<std::vector<int>> ExpandCounts(std::string_view text);

}  // namespace hvd::launch
