// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allreduce by direct exchange, in rounds (direct_round.h): member m owns slice m of every round; all send it their
// slices, it reduces them in the order of the rank layout (local rank order, then host order) and sends the result to
// all.
//
// round    some bytes of the run; several of them are in flight.
// Cost: 2 (p-1)/p n bytes sent and received per member, 2 steps per round, any number of members, no extra copy but the
// owner's received slices. The order of summation depends on the layout alone.

#include <deque>

#include "hvd/collective/machine.h"
#include "hvd/collective/pairwise/direct_round.h"

namespace hvd::collective::pairwise {

// How the run is cut. All members cut it alike.
struct Rounds {
  size_t bytes = 64;     // of one
  size_t in_flight = 1;  // of them
};

class DirectReduce final : public Machine {
 public:
  // `payload` stays the caller's until kDone.
  DirectReduce(Link link, Reduction reduction, const Payload* payload, Rounds cut, std::shared_ptr<ScratchPool> pool);

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override { link_.CollectAwaited(members); }
  Error error() const override { return link_.error(); }

 private:
  Link link_;
  const Reduction reduction_;
  const Payload* payload_;
  const Rounds cut_;
  const std::shared_ptr<ScratchPool> pool_;
  size_t started_ = 0;  // bytes
  std::deque<DirectRound> rounds_;
};

}  // namespace hvd::collective::pairwise
