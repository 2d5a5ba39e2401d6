// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/place.h"

#include <algorithm>

#include "hvd/net/address.h"
#include "hvd/net/deadline.h"
#include "hvd/rendezvous/factory.h"

namespace hvd::engine {
namespace {

tl::unexpected<Error> BadPlace(const std::string& address, std::string_view why) {
  return Fail(Code::kInvalidArgument,
              "HOROVOD_RENDEZVOUS_ADDR={} {}; give host:port, [v6 address]:port or file:///folder, the same for all "
              "ranks",
              address, why);
}

// The same words as for every other variable.
Error Named(const std::string& address, Error error) {
  error.message = fmt::format("HOROVOD_RENDEZVOUS_ADDR={}: {}", address, error.message);
  // Not one of hvd.h's codes.
  if (error.code == Code::kAlreadyExists) error.code = Code::kFailedPrecondition;
  return error;
}

// A driver may serve the store for us, here or on a machine where no rank is; if the port is somebody else's,
// connecting says so.
Status ServeOrFindServer(rendezvous::Options options, Place* place) {
  auto server = rendezvous::Serve(options);
  if (server) {
    place->server = std::move(*server);
    return {};
  }
  const bool elsewhere = server.error().code == Code::kFailedPrecondition;
  if (server.error().code != Code::kAlreadyExists && !elsewhere) return Fail(std::move(server).error());
  options.timeout = std::min<Duration>(options.timeout, std::chrono::seconds(5));
  auto store = rendezvous::OpenStore(options);
  if (!store) {
    return Fail(elsewhere ? Code::kInvalidArgument : server.error().code, "{} ({})", server.error().message,
                store.error().message);
  }
  place->store = std::move(*store);
  return {};
}

}  // namespace

Status CheckPlace(const std::string& address) {
  if (IsInProcess(address) || IsLocal(address)) return {};
  if (IsFolder(address)) {
    if (!address.starts_with("file:///")) return BadPlace(address, "is no folder");
    return {};
  }
  if (address.find("://") != std::string::npos) return BadPlace(address, "begins with an unknown scheme");
  const auto where = net::ParseHostPort(address);
  if (!where) return BadPlace(address, "is no address (" + where.error().message + ")");
  if (where->port == 0) return BadPlace(address, "has no port, or port 0, which every rank would choose for itself");
  return {};
}

Result<Place> OpenPlace(const Config& config, Time deadline) {
  const std::string& address = config.rendezvous_addr;
  HVD_RETURN_IF_ERROR(CheckPlace(address));
  Place place;
  place.address = address;
  if (!config.token_file.empty()) {
    HVD_ASSIGN_OR_RETURN(place.token, net::Token::Load(config.token_file));
  }
  rendezvous::Options options;
  options.address = address;
  options.insecure = config.insecure;
  if (!IsLocal(address)) options.token = place.token;
  options.timeout = std::max(net::Left(deadline), Duration(1));
  if (config.rank == 0 && !IsFolder(address) && !IsInProcess(address)) {
    if (auto served = ServeOrFindServer(options, &place); !served) return Fail(Named(address, served.error()));
  }
  if (place.store == nullptr) {
    auto store = rendezvous::OpenStore(options);
    if (!store) return Fail(Named(address, std::move(store).error()));
    place.store = std::move(*store);
  }
  return place;
}

}  // namespace hvd::engine
