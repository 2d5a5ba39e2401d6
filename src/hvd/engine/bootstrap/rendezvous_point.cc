// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/rendezvous_point.h"

#include <algorithm>

#include "hvd/base/log.h"
#include "hvd/engine/bootstrap/rank0_refusal.h"
#include "hvd/net/address.h"
#include "hvd/net/deadline.h"
#include "hvd/rendezvous/factory.h"

namespace hvd::engine::bootstrap {
namespace {

// For a store that somebody else may serve to answer.
constexpr Duration kTurnAway = std::chrono::seconds(1);

// By host and port.
bool IsServed(const std::string& address) { return !IsFolder(address) && !IsInProcess(address) && !IsLocal(address); }

tl::unexpected<Error> BadPlace(const std::string& address, std::string_view why) {
  return Fail(Code::kInvalidArgument,
              "HOROVOD_RENDEZVOUS_ADDR={} {}; give host:port, [v6 address]:port or file:///folder, the same for all "
              "ranks",
              address, why);
}

// The same words as for every other variable.
Error Named(const Config& config, Error error) {
  error.message = fmt::format("HOROVOD_RENDEZVOUS_ADDR={}: {}", config.rendezvous_addr, error.message);
  const bool by_token = !config.token_file.empty() && IsServed(config.rendezvous_addr);
  if (error.code == Code::kPermissionDenied && config.rank != 0 && by_token) {
    error.message += "; was rank 0 able to read it?";
  }
  // Not one of hvd.h's codes.
  if (error.code == Code::kAlreadyExists) error.code = Code::kFailedPrecondition;
  return error;
}

// A driver may serve the store for us, here or on a machine where no rank is; if the port is somebody else's,
// connecting says so.
Status ServeOrFindServer(rendezvous::Options options, RendezvousPoint* place) {
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

// By what the options say, as the one who serves where nobody else does, or as a guest.
Status Enter(const rendezvous::Options& options, bool serves, RendezvousPoint* place) {
  if (serves && !IsFolder(options.address) && !IsInProcess(options.address)) {
    HVD_RETURN_IF_ERROR(ServeOrFindServer(options, place));
  }
  if (place->store != nullptr) return {};
  HVD_ASSIGN_OR_RETURN(place->store, rendezvous::OpenStore(options));
  return {};
}

// Rank 0 has no token, and those who have one, or need none, wait for it: it says why it does not come where each of
// them looks. What it says cannot be read by those with the token, who learn only that it does not have it. Whoever
// serves the store for the ranks, as a launcher does, sees rank 0 end, and tells the others better.
void TurnAway(const Config& config, const Error& why, Time deadline) {
  const std::string& address = config.rendezvous_addr;
  const bool shared = IsFolder(address) || IsInProcess(address);
  rendezvous::Options options{.address = address, .timeout = std::min<Duration>(net::Left(deadline), kTurnAway)};
  RendezvousPoint open, with_token;
  (void)Enter(options, true, &open);
  if (open.store != nullptr && open.server == nullptr && !shared) return;
  if (auto token = net::Token::Generate(); token && IsServed(address)) {
    options.token = std::move(*token);
    (void)Enter(options, true, &with_token);
  }
  for (const RendezvousPoint* place : {&open, &with_token}) {
    if (place->store == nullptr || (place->server == nullptr && !shared)) continue;
    return PublishRefusal(place->store.get(), config, why, deadline);
  }
}

// One line per start, of rank 0: the setting may have been left in a profile.
void WarnOfInsecurity(const Config& config, const RendezvousPoint& place) {
  if (config.rank != 0 || !config.insecure || place.token || !IsServed(config.rendezvous_addr)) return;
  const auto where = net::ParseHostPort(config.rendezvous_addr);
  const auto addresses = where ? net::Resolve(*where) : Result<std::vector<net::Address>>(Fail(where.error()));
  if (!addresses || std::ranges::all_of(*addresses, &net::Address::IsLoopback)) return;
  log::Warning(
      "HOROVOD_INSECURE=1 and no HOROVOD_TOKEN_FILE: every process that reaches {} can join this job and run "
      "code in it",
      config.rendezvous_addr);
}

}  // namespace

Result<std::optional<net::Token>> LoadToken(const Config& config) {
  if (config.token_file.empty()) return std::optional<net::Token>();
  HVD_ASSIGN_OR_RETURN(net::Token token, net::Token::Load(config.token_file));
  return std::optional(std::move(token));
}

Status CheckRendezvousAddress(const std::string& address) {
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

Result<RendezvousPoint> OpenRendezvousPoint(const Config& config, Time deadline) {
  const std::string& address = config.rendezvous_addr;
  HVD_RETURN_IF_ERROR(CheckRendezvousAddress(address));
  RendezvousPoint place;
  place.address = address;
  auto token = LoadToken(config);
  if (!token) {
    if (config.rank == 0) TurnAway(config, token.error(), deadline);
    return Fail(std::move(token).error());
  }
  place.token = std::move(*token);
  rendezvous::Options options;
  options.address = address;
  options.insecure = config.insecure;
  if (!IsLocal(address)) options.token = place.token;
  options.timeout = std::max(net::Left(deadline), Duration(1));
  if (auto entered = Enter(options, config.rank == 0, &place); !entered) {
    return Fail(Named(config, std::move(entered).error()));
  }
  WarnOfInsecurity(config, place);
  return place;
}

}  // namespace hvd::engine::bootstrap
