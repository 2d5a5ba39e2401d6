// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/tcp/endpoint.h"

#include <unistd.h>

#include <algorithm>

namespace hvd::rendezvous::tcp {
namespace {

constexpr std::string_view kLocal = "local:";

}  // namespace

std::string SocketName(uid_t user, std::string_view store) { return fmt::format("hvd-store-{}-{}", user, store); }

Result<net::Address> LocalName(uint16_t port) {
  return net::Address::UnixAbstract(SocketName(::geteuid(), std::to_string(port)));
}

Result<Endpoint> ResolveEndpoint(const Options& options) {
  if (options.address.starts_with(kLocal)) {
    Endpoint local;
    local.name = options.address.substr(kLocal.size());
    local.protection = Protection::kSameUser;
    HVD_ASSIGN_OR_RETURN(const net::Address name, net::Address::UnixAbstract(SocketName(::geteuid(), local.name)));
    local.addresses = {name};
    return local;
  }
  HVD_ASSIGN_OR_RETURN(net::HostPort where, net::ParseHostPort(options.address));
  HVD_ASSIGN_OR_RETURN(std::vector<net::Address> addresses, net::Resolve(where));
  Endpoint endpoint{std::move(where), {}, std::move(addresses), Protection::kTls};
  if (options.token) return endpoint;
  const bool local = std::all_of(endpoint.addresses.begin(), endpoint.addresses.end(),
                                 [](const net::Address& address) { return address.IsLoopback(); });
  if (local) {
    HVD_ASSIGN_OR_RETURN(const net::Address name, LocalName(endpoint.where.port));
    endpoint.addresses = {name};
    endpoint.protection = Protection::kSameUser;
    return endpoint;
  }
  if (!options.insecure) {
    return Fail(Code::kPermissionDenied,
                "the store at {} is reachable from other machines and there is no job token: run "
                "`(umask 077; openssl rand -hex 32 > token)` and set HOROVOD_TOKEN_FILE to that file on every rank "
                "(or HOROVOD_INSECURE=1 on a net that you trust)",
                net::ToString(endpoint.where));
  }
  endpoint.protection = Protection::kNone;
  return endpoint;
}

Result<std::shared_ptr<net::TlsContext>> MakeTls(const Options& options, net::TlsSide side) {
  if (!options.token) return std::shared_ptr<net::TlsContext>();
  return net::TlsContext::Create(side, *options.token, "store", options.generation);
}

Result<std::unique_ptr<net::Stream>> MakeStream(const std::shared_ptr<net::TlsContext>& tls, net::Fd fd) {
  if (!tls) return std::unique_ptr<net::Stream>(std::make_unique<net::PlainStream>(std::move(fd)));
  HVD_ASSIGN_OR_RETURN(std::unique_ptr<net::Stream> stream, net::TlsStream::Create(tls, std::move(fd)));
  return stream;
}

}  // namespace hvd::rendezvous::tcp
