// SPDX-License-Identifier: Apache-2.0
#pragma once
// Opens the data connections between ranks: one per pair of ranks, the higher rank connects to the lower.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/base/types.h"
#include "hvd/loop/loop.h"
#include "hvd/net/address.h"
#include "hvd/net/token.h"
#include "hvd/transport/pair.h"
#include "hvd/transport/tcp/listener.h"
#include "hvd/transport/tcp/socket_options.h"

namespace hvd::transport::tcp {

struct ConnectOptions {
  Rank rank = 0;
  int size = 1;
  // Where each rank listens. An empty address (length 0) means that no connection to that rank is wanted; both sides
  // must agree on that. The own entry is not used.
  std::vector<net::Address> addresses;
  // nullptr: no secret; the handshake then guards against mix-ups only. Needed for `encrypt`.
  const net::Token* token = nullptr;
  uint64_t generation = 0;
  loop::Loop* loop = nullptr;
  Listener* listener = nullptr;
  Time deadline;
  SocketOptions socket;
  bool encrypt = false;
};

// Blocks until every wanted connection is open, or the deadline. The result has an entry per rank, nullptr where there
// is no connection. Errors name every rank that is missing and where it should be. Strangers that connect are turned
// away and hold nobody up. The listener may be closed afterwards.
Result<std::vector<std::unique_ptr<Pair>>> ConnectAll(const ConnectOptions& options);

}  // namespace hvd::transport::tcp
