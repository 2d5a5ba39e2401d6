// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where ranks find each other: the store that HOROVOD_RENDEZVOUS_ADDR names. Rank 0 serves it if no other process does.

#include <memory>
#include <optional>
#include <string>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/net/token.h"
#include "hvd/rendezvous/server.h"
#include "hvd/rendezvous/store.h"

namespace hvd::engine::bootstrap {

// Declared in the order of their lives: the store goes before the server that it may ask.
struct RendezvousPoint {
  std::string address;              // where it is
  std::optional<net::Token> token;  // the job's
  std::unique_ptr<rendezvous::Server> server;
  std::unique_ptr<rendezvous::Store> store;
};

// host:port with a port, file:///folder, local:NAME or memory:NAME; else an error that names variable and value.
Status CheckRendezvousAddress(const std::string& address);
inline bool IsFolder(const std::string& address) { return address.starts_with("file:"); }
// A unix socket of this user.
inline bool IsLocal(const std::string& address) { return address.starts_with("local:"); }
inline bool IsInProcess(const std::string& address) { return address.starts_with("memory:"); }

// By HOROVOD_TOKEN_FILE; none: it is not set.
Result<std::optional<net::Token>> LoadToken(const Config& config);
// Errors name the variable and its value.
Result<RendezvousPoint> OpenRendezvousPoint(const Config& config, Time deadline);

}  // namespace hvd::engine::bootstrap
