// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a client reaches the server: resolve, connect, prove, exchange prefaces; again and again until it works, cannot
// work, or the time is up.

#include <memory>

#include "hvd/net/stream.h"
#include "hvd/rendezvous/factory.h"

namespace hvd::rendezvous::tcp {

Result<std::unique_ptr<net::Stream>> Dial(const Options& options);

}  // namespace hvd::rendezvous::tcp
