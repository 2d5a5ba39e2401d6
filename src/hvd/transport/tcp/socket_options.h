// SPDX-License-Identifier: Apache-2.0
#pragma once
// How data sockets are tuned. What the system refuses is left as it is.

#include <string>

#include "hvd/base/clock.h"

namespace hvd::transport::tcp {

struct SocketOptions {
  std::string congestion;    // algorithm by name; empty: the system's
  Duration user_timeout{0};  // unacknowledged data ends the connection after this; 0: the system's patience
};

void Apply(const SocketOptions& options, int fd);

}  // namespace hvd::transport::tcp
