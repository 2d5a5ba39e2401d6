// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether a host name means the machine that the launcher runs on.

#include <string>

namespace hvd::launch {

// localhost, a loopback address, this machine's name, or a name or address that is one of its own. May ask the
// system's resolver.
bool IsThisMachine(const std::string& host);

}  // namespace hvd::launch
