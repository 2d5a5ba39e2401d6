// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/meeting_place.h"

#include "hvd/net/address.h"

namespace hvd::launch {
namespace {

// The server is a thread of this process: more than this it never needs.
constexpr Duration kAnswer = std::chrono::seconds(1);

}  // namespace

Status MeetingPlace::Open(const std::string& address, const std::optional<net::Token>& token) {
  std::string host = "127.0.0.1";
  if (!address.empty()) {
    HVD_ASSIGN_OR_RETURN(const net::HostPort where, net::ParseHostPort(address));
    host = where.host;
    options_.token = token;
  }
  options_.address = net::ToString({host, 0});
  options_.timeout = kAnswer;
  rendezvous::Options serving = options_;
  // What rank 0 says when all have come (engine/meeting.h).
  serving.on_set = [this](const std::string& key, const std::string& value) {
    if (on_met_ && value == "ok" && key.ends_with("/verdict")) on_met_();
  };
  HVD_ASSIGN_OR_RETURN(server_, rendezvous::Serve(serving));
  options_.address = server_->address();
  return {};
}

void MeetingPlace::TellWhoLeft(const std::string& ranks) {
  if (store_ == nullptr) {
    auto opened = rendezvous::OpenStore(options_);
    if (!opened) return;
    store_ = std::move(*opened);
  }
  // Who waits finds out anyway, later.
  (void)store_->Set(rendezvous::kLeftKey, ranks);
}

}  // namespace hvd::launch
