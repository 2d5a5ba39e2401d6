// SPDX-License-Identifier: Apache-2.0
#pragma once
// The store as drivers use it, by address and token file.

#include <memory>
#include <string>

#include "hvd/base/result.h"
#include "hvd/rendezvous/server.h"
#include "hvd/rendezvous/store.h"

namespace hvd::engine {

// An empty token_file means no token.
Result<std::unique_ptr<rendezvous::Store>> ConnectStore(const std::string& address, const std::string& token_file,
                                                        Duration timeout);
Result<std::unique_ptr<rendezvous::Server>> ServeStore(const std::string& address, const std::string& token_file);
// The port that a server chose; 0 if it has none.
int PortOf(const rendezvous::Server& server);

}  // namespace hvd::engine
