// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reducescatter by direct exchange: all send member m their version of part m, and it reduces them in the order of the
// rank layout (local rank order, then host order).
//
// round    piece r of every part; kRounds of them are in flight.
// Cost: (p-1)/p n bytes sent and received per member, one step per round.

#include <deque>

#include "hvd/collective/machine.h"
#include "hvd/collective/pairwise/direct_round.h"
#include "hvd/collective/pattern/parts.h"

namespace hvd::collective::pairwise {

class DirectScatter final : public Machine {
 public:
  // `part_bytes`: of every member, together the payload, which stays the caller's until kDone. `to`: this member's
  // result; nullptr: not wanted.
  DirectScatter(Link link, Reduction reduction, const std::vector<size_t>& part_bytes, std::byte* to,
                const Payload* payload, size_t piece_bytes, std::shared_ptr<ScratchPool> pool);

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override { link_.CollectAwaited(members); }
  Error error() const override { return link_.error(); }

 private:
  struct Round {
    pattern::Range mine;  // of the run
    Scratch pieces;       // everybody's version of it, member by member
    std::shared_ptr<int> missing = std::make_shared<int>(0);
  };
  static constexpr size_t kRounds = 4;

  void StartRound();
  void ReduceRound(const Round& round);

  Link link_;
  const Reduction reduction_;
  const pattern::Parts parts_;
  std::byte* const to_;
  const Payload* payload_;
  const std::shared_ptr<ScratchPool> pool_;
  size_t started_ = 0;
  std::deque<Round> rounds_;
};

}  // namespace hvd::collective::pairwise
