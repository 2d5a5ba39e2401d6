// SPDX-License-Identifier: Apache-2.0
#pragma once
// Connections to a listener that have not proven yet who they are, and the rules for them: how many there may be, for
// how long, and who has to make room.
//
// A newcomer to a full queue takes the place of a random connection from the source with the most of them. So a flood
// from one machine only displaces itself, and a member of the job from any other machine keeps its place.
//
// Thread safety: none.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/net/address.h"

namespace hvd::net {

class Strangers {
 public:
  using Id = uint64_t;
  static constexpr size_t kMost = 256;
  // Time for a connection to prove itself.
  static constexpr Duration kProofTime = std::chrono::seconds(5);
  // Connections that a listener accepts per iteration of its loop: those that are here already have to move, too.
  static constexpr int kAcceptsPerTurn = 16;
  // Without descriptors a listener stays readable, so polling it would burn a core: it is left alone for so long.
  static constexpr Duration kAcceptPause = std::chrono::milliseconds(50);

  explicit Strangers(size_t most = kMost) : most_(most) {}

  // Takes a connection in. Returns the one that has to be closed for it, which is not in the queue any more.
  std::optional<Id> Add(Id id, const Address& from);
  // For a connection that has proven itself or is gone; nothing happens if it is not in the queue.
  void Remove(Id id);
  size_t size() const { return source_of_.size(); }

 private:
  Id PickVictim() const;

  const size_t most_;
  std::unordered_map<Id, std::string> source_of_;
  std::unordered_map<std::string, std::vector<Id>> by_source_;
};

}  // namespace hvd::net
