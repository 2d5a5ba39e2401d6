// SPDX-License-Identifier: Apache-2.0
#pragma once
// State of the store server: keys, values, and wait requests that are parked until their keys exist. Pure: no sockets,
// time is given.
//
// A parked wait is filed under one key only, the first that it misses; when that key comes it moves on to the next. So
// n clients that wait for n keys cost n entries, not n squared.
//
// Thread safety: one thread at a time. The answer function must not call back.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/rendezvous/tcp/protocol.h"

namespace hvd::rendezvous::tcp {

using ClientId = uint64_t;

class StoreState {
 public:
  using Answer = std::function<void(ClientId, const Response&)>;
  explicit StoreState(Answer answer) : answer_(std::move(answer)) {}

  // Answers every request but goodbye exactly once, now or later. A client has at most one request open.
  void Handle(ClientId client, Request request, Time now);
  // Drops the client's parked wait, unanswered.
  void Forget(ClientId client);
  // When Expire has something to do next.
  std::optional<Time> NextDeadline() const;
  void Expire(Time now);

 private:
  struct Parked {
    std::vector<std::string> keys;
    Time deadline;
    Duration timeout;
    std::string filed_under;
  };

  void Set(const std::string& key, std::string value);
  Response Add(const Request& request);
  void Park(ClientId client, Request request, Time now);
  std::optional<std::string> FirstMissing(const std::vector<std::string>& keys) const;
  Response Values(const std::vector<std::string>& keys) const;
  Response TimedOut(const Parked& parked) const;

  Answer answer_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<ClientId, Parked> parked_;
  std::unordered_map<std::string, std::vector<ClientId>> waiting_for_;
  std::set<std::pair<Time, ClientId>> deadlines_;
};

}  // namespace hvd::rendezvous::tcp
