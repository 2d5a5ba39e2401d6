// SPDX-License-Identifier: Apache-2.0
#pragma once
// What this process may really use: cores by affinity and container quota, memory by machine and container limit.
//
// Thread safety: all functions may be called from any thread.

#include <cstdint>
#include <span>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/topology/cgroup.h"

namespace hvd::topology {

// At least 1. A quota of 2.5 counts as 2: who spins on 3 is throttled.
int UsableCores(const CgroupPaths& paths = {});

// As above, of this process and these together: ranks that are bound to a core each have as many cores as ranks. A
// process that cannot be asked counts for nothing.
int UsableCores(std::span<const int> pids, const CgroupPaths& paths = {});

// The core that HOROVOD_THREAD_AFFINITY gives to a rank of this host: "0,4,8" one each, "4" the first one's, and the
// others follow.
Result<int> CoreOf(std::string_view affinity, int local_rank);

// Binds the calling thread.
Status BindToCore(int core);

// Bytes of RAM, or of the container's limit if that is less.
int64_t TotalMemory(const CgroupPaths& paths = {});

}  // namespace hvd::topology
