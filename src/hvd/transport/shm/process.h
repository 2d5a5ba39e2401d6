// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank knows of another process of its machine, and how it ends it.
//
// Thread safety: free functions, safe.

#include <cstdint>

#include "hvd/transport/shm/handshake.h"
#include "hvd/transport/shm/hub.h"

namespace hvd::transport::shm {

// This process as a member: pid, start time, pid namespace.
Member DescribeSelf(int local, Rank rank);
// A descriptor of this process for its peers; empty where the kernel has none.
Fd OpenSelf();
// SIGKILL, by pidfd, or by pid if it is certainly still the same process. False if it could not be sent.
bool KillProcess(const LocalRank& victim);
// Whether the process is writing a core: none of its threads runs user code any more.
bool DumpsCore(const LocalRank& victim);

}  // namespace hvd::transport::shm
