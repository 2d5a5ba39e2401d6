// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which host this process is on. Ranks with equal identity share memory; so two network namespaces, or two users, of
// one machine are two hosts.
//
// Thread safety: all functions may be called from any thread.

#include <string>

#include "hvd/base/result.h"

namespace hvd::topology {

// `configured` (HOROVOD_HOSTNAME) if it is not empty, else boot id, network namespace and user.
Result<std::string> HostIdentity(const std::string& configured);

// The machine's name, for messages.
std::string Hostname();

}  // namespace hvd::topology
