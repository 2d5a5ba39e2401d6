// SPDX-License-Identifier: Apache-2.0
#pragma once
// The store where the ranks of a job meet, as the launcher serves it: it sees when they have met, and tells those who
// wait there of others that will not come.
//
// Thread safety: one thread; `the functions given to it are called on another.

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
  using OnSet = std::function<void(const std::string& key, const std::string& value)>;

  // `on_met`: all ranks have come to hvd.init(). `on_set`: a rank has set a key; may be empty.
  explicit MeetingPlace(std::function<void()> on_met, OnSet on_set = {})
      : on_met_(std::move(on_met)), on_set_(std::move(on_set)) {}

  // At the host of `address`, any port; empty: for processes of this user on this machine, without a port and without
  // a token.
  Status Open(const std::string& address, const std::optional<net::Token>& token);
  std::string address() const { return server_->address(); }
  // The ranks of a generation that have ended, see rendezvous::LostKey.
  void TellWhoIsLost(int generation, const std::string& ranks);
  // The numbers of the ranks that ended well, see rendezvous::kLeftKey.
  void TellWhoLeft(const std::string& ranks);
  // Sets a key for ranks that wait for it.
  Status Set(const std::string& key, const std::string& value);
  Status Delete(const std::string& key);

 private:
  Result<rendezvous::Store*> Client();

  const std::function<void()> on_met_;
  const OnSet on_set_;
  rendezvous::Options options_;
  std::unique_ptr<rendezvous::Server> server_;
  std::unique_ptr<rendezvous::Store> store_;  // as a client; once there is something to say
};

}  // namespace hvd::launch
