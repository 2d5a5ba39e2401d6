// SPDX-License-Identifier: Apache-2.0
#pragma once
// From what the user gave to sockets: which addresses, under which protection. Client and server decide alike.

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/net/address.h"
#include "hvd/net/stream.h"
#include "hvd/net/tls.h"
#include "hvd/rendezvous/factory.h"

namespace hvd::rendezvous::tcp {

enum class Protection { kTls, kSameUser, kNone };

struct Endpoint {
  net::HostPort where;  // as the user wrote it
  std::string name;     // of a unix socket without a port; empty: there is one
  std::vector<net::Address> addresses;
  Protection protection = Protection::kNone;

  bool needs_port() const { return name.empty() && where.port == 0; }
  // As clients give it.
  std::string ToString() const { return name.empty() ? net::ToString(where) : "local:" + name; }
};

// kNotFound: the name does not resolve, at the moment. kPermissionDenied: another machine, no token and not `insecure`.
Result<Endpoint> ResolveEndpoint(const Options& options);

// The name of the unix socket at which a user serves a store, which is a port, or a name of its own.
std::string SocketName(uid_t user, std::string_view store);
// The unix socket that stands for a port of this machine where there is no token.
Result<net::Address> LocalName(uint16_t port);

// nullptr without a token.
Result<std::shared_ptr<net::TlsContext>> MakeTls(const Options& options, net::TlsSide side);
// TLS if there is a context, else plain.
Result<std::unique_ptr<net::Stream>> MakeStream(const std::shared_ptr<net::TlsContext>& tls, net::Fd fd);

}  // namespace hvd::rendezvous::tcp
