// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/launcher_exchange.h"

#include <algorithm>
#include <array>

#include "hvd/mpi/session.h"
#include "hvd/net/crypto.h"
#include "hvd/net/deadline.h"
#include "hvd/net/interfaces.h"
#include "hvd/pmi/pmix.h"
#include "hvd/pmi/wire.h"
#include "hvd/rendezvous/factory.h"

namespace hvd::engine::bootstrap {
namespace {

// What is told: "ADDRESS", "ADDRESS|TOKEN" or, if rank 0 cannot serve, "!WHY" with blanks replaced.
constexpr char kToken = '|';
constexpr char kSorry = '!';
constexpr char kBlank = '~';

Result<std::string> Tell(const Config& config, const RendezvousMethod& method, const std::string& text, Time deadline) {
  const std::string key = fmt::format("hvd-{}", config.generation);
  switch (method.kind) {
    case RendezvousMethod::Kind::kMpi:
      return mpi::Share(method.mpi, method.comm, text, deadline);
    case RendezvousMethod::Kind::kPmix:
      return pmi::ShareByPmix(config.rank, key, text, deadline);
    default:
      return pmi::ShareByWire(config.launcher.pmi_fd, config.rank, key, text, deadline);
  }
}

Result<rendezvous::Options> LocalOptions() {
  std::array<uint8_t, 16> random;
  HVD_RETURN_IF_ERROR(net::RandomBytes(random));
  rendezvous::Options options;
  options.address = "local:" + net::ToHex(random);
  return options;
}

Result<rendezvous::Options> NetOptions(const Config& config, const std::optional<net::Token>& token) {
  rendezvous::Options options;
  HVD_ASSIGN_OR_RETURN(const net::Address own, net::ChooseAddress(config.iface));
  options.address = own.WithPort(0).ToString();
  options.token = token;
  if (!options.token) {
    HVD_ASSIGN_OR_RETURN(options.token, net::Token::Generate());
  }
  return options;
}

Result<std::string> ServeStore(const Config& config, RendezvousPoint* place) {
  HVD_ASSIGN_OR_RETURN(place->token, LoadToken(config));
  HVD_ASSIGN_OR_RETURN(const rendezvous::Options options,
                       config.launcher.all_local() ? LocalOptions() : NetOptions(config, place->token));
  HVD_ASSIGN_OR_RETURN(place->server, rendezvous::Serve(options));
  place->address = place->server->address();
  if (!options.token) return place->address;
  const bool made_now = !place->token;
  place->token = options.token;
  // One that came from a file is there for all ranks.
  return made_now ? fmt::format("{}{}{}", place->address, kToken, net::ToHex(options.token->bytes())) : place->address;
}

Status Hear(const std::string& text, RendezvousPoint* place) {
  if (text.empty() || text[0] == kSorry) {
    std::string why = text.empty() ? "it said nothing" : text.substr(1);
    std::ranges::replace(why, kBlank, ' ');
    return Fail(Code::kFailedPrecondition, "rank 0 cannot be met: {}", why);
  }
  const size_t bar = text.find(kToken);
  place->address = text.substr(0, bar);
  if (bar == std::string::npos) return {};
  HVD_ASSIGN_OR_RETURN(place->token, net::Token::FromHex(text.substr(bar + 1)));
  return {};
}

}  // namespace

Result<RendezvousPoint> ExchangeByLauncher(const Config& config, const RendezvousMethod& method, Time deadline) {
  RendezvousPoint place;
  std::string text;
  Error failed{Code::kOk, {}};
  if (config.rank != 0) {
    HVD_ASSIGN_OR_RETURN(place.token, LoadToken(config));
  } else {
    auto served = ServeStore(config, &place);
    if (!served) {
      failed = served.error();
      text = kSorry + failed.message.substr(0, 500);
      for (char& c : text) {
        if (c == ' ' || c == '\n' || c == '=') c = kBlank;
      }
    } else {
      text = *served;
    }
  }
  auto told = Tell(config, method, text, deadline);
  if (failed.code != Code::kOk) return Fail(failed);
  if (!told) return Fail(told.error().code, "rank {} of {}: {}", config.rank, config.size, told.error().message);
  if (config.rank != 0) HVD_RETURN_IF_ERROR(Hear(*told, &place));
  rendezvous::Options options;
  options.address = place.address;
  if (!place.address.starts_with("local:")) options.token = place.token;
  options.timeout = std::max(net::Left(deadline), Duration(1));
  auto store = rendezvous::OpenStore(options);
  if (!store) {
    return Fail(store.error().code, "rank 0 waits at {}: {}; HOROVOD_GLOO_IFACE chooses another interface",
                place.address, store.error().message);
  }
  place.store = std::move(*store);
  return place;
}

}  // namespace hvd::engine::bootstrap
