// SPDX-License-Identifier: Apache-2.0
#pragma once
// The store where the ranks of a job meet, as the launcher serves it: it sees when they have met, and tells those who
// wait there of others that will not come.
//
// Thread safety: one thread; `on_met` is called on another.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "hvd/base/result.h"
#include "hvd/net/token.h"
#include "hvd/rendezvous/factory.h"

namespace hvd::launch {

class MeetingPlace {
 public:
  // `on_met`: all ranks have come to hvd.init().
  explicit MeetingPlace(std::function<void()> on_met) : on_met_(std::move(on_met)) {}

  // At the host of `address`, any port; empty: for processes of this user on this machine, without a port and without
  // a token.
  Status Open(const std::string& address, const std::optional<net::Token>& token);
  std::string address() const { return server_->address(); }
  // The numbers of the ranks that ended well, see rendezvous::kLeftKey.
  void TellWhoLeft(const std::string& ranks);

 private:
  const std::function<void()> on_met_;
  rendezvous::Options options_;
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::Store> store_;  // as a client; once there is something to say
};

}  // namespace hvd::launch
