// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/store.h"

#include "hvd/net/address.h"
#include "hvd/rendezvous/factory.h"

namespace hvd::engine {
namespace {

Result<rendezvous::Options> MakeOptions(const std::string& address, const std::string& token_file) {
  rendezvous::Options options;
  options.address = address;
  if (!token_file.empty()) {
    HVD_ASSIGN_OR_RETURN(options.token, net::Token::Load(token_file));
  }
  return options;
}

}  // namespace

Result<std::unique_ptr<rendezvous::Store>> ConnectStore(const std::string& address, const std::string& token_file,
                                                        Duration timeout) {
  HVD_ASSIGN_OR_RETURN(rendezvous::Options options, MakeOptions(address, token_file));
  options.timeout = timeout;
  return rendezvous::OpenStore(options);
}

Result<std::unique_ptr<rendezvous::Server>> ServeStore(const std::string& address, const std::string& token_file) {
  HVD_ASSIGN_OR_RETURN(const rendezvous::Options options, MakeOptions(address, token_file));
  return rendezvous::Serve(options);
}

int PortOf(const rendezvous::Server& server) {
  const auto where = net::ParseHostPort(server.address());
  return where ? where->port : 0;
}

}  // namespace hvd::engine
