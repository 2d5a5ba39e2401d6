// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/meeting_place.h"

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
  // What rank 0 says when all have come (engine/bootstrap/rendezvous_protocol.h).
  serving.on_set = [this](const std::string& key, const std::string& value) {
    if (on_set_) on_set_(key, value);
    if (on_met_ && value == "ok" && key.ends_with("/verdict")) on_met_();
  };
  HVD_ASSIGN_OR_RETURN(server_, rendezvous::Serve(serving));
  options_.address = server_->address();
  return {};
}

Result<rendezvous::Store*> MeetingPlace::Client() {
  if (store_ == nullptr) {
    HVD_ASSIGN_OR_RETURN(store_, rendezvous::OpenStore(options_));
  }
  return store_.get();
}

Status MeetingPlace::Set(const std::string& key, const std::string& value) {
  HVD_ASSIGN_OR_RETURN(rendezvous::Store* const store, Client());
  return store->Set(key, value);
}

Status MeetingPlace::Delete(const std::string& key) {
  HVD_ASSIGN_OR_RETURN(rendezvous::Store* const store, Client());
  return store->Delete(key);
}

void MeetingPlace::TellWhoIsLost(int generation, const std::string& ranks) {
  (void)Set(rendezvous::LostKey(generation), ranks);
}

void MeetingPlace::TellWhoLeft(const std::string& ranks) {
  // Who waits finds out anyway, later.
  (void)Set(rendezvous::kLeftKey, ranks);
}

}  // namespace hvd::launch
