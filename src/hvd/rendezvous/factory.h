// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one way to a Store.
//
//   host:port       a server, somewhere. With a token: TLS 1.3. Without one: a loopback address means a unix socket of
//                   this user on this machine; any other is refused, or plain TCP with `insecure`.
//   local:NAME      a server on this machine, at a unix socket of this user with that name
//   file:///folder  files in a folder that all ranks see (and nobody else: mode 0700)
//   memory:NAME     shared by the stores of that name in this process, while any of them exists

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/net/token.h"
#include "hvd/rendezvous/server.h"
#include "hvd/rendezvous/store.h"

namespace hvd::rendezvous {

struct Options {
  std::string address{};
  std::optional<net::Token> token{};
  bool insecure = false;
  uint64_t generation = 0;                      // part of the TLS key
  Duration timeout = std::chrono::seconds(30);  // for a server to appear, and for one to answer
  // Of a server: told, on its thread, what clients set. May be empty.
  std::function<void(const std::string& key, const std::string& value)> on_set{};
};

// kDeadlineExceeded: no server in time. kPermissionDenied: wrong token or user, at once.
Result<std::unique_ptr<Store>> OpenStore(const Options& options);

// Serves host:port from a thread of its own; port 0: any free one. kAlreadyExists: somebody serves that port.
Result<std::unique_ptr<Server>> Serve(const Options& options);

}  // namespace hvd::rendezvous
