// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allreduce by direct exchange: member m owns slice m of every round; all send it their slices, it reduces them in the
// order of the rank layout (local rank order, then host order) and sends the result to all.
//
// round    at most `round_bytes` of the run; kRounds of them are in flight.
// Cost: 2 (p-1)/p n bytes sent and received per member, 2 steps per round, any number of members, no extra copy but the
// owner's received slices. The order of summation depends on the layout alone.

#include <deque>

#include "hvd/base/types.h"
#include "hvd/collective/machine.h"
#include "hvd/collective/pairwise/link.h"
#include "hvd/kernel/kernel.h"

namespace hvd::collective::pairwise {

class DirectReduce final : public Machine {
 public:
  // `payload` stays the caller's until kDone.
  DirectReduce(Link link, SumOrder order, ReduceOp op, DType type, kernel::Scale scale, const Payload* payload,
               size_t round_bytes);

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override { link_.CollectAwaited(members); }
  Error error() const override { return link_.error(); }

 private:
  struct Round {
    int number = 0;
    size_t begin = 0;  // in the run
    size_t bytes = 0;
    std::vector<std::byte> slices;  // everybody's version of my slice, member by member
    std::vector<std::byte> result;
    std::vector<std::byte> discard;
    std::shared_ptr<int> inputs_missing = std::make_shared<int>(0);
    std::shared_ptr<int> results_missing = std::make_shared<int>(0);
    bool reduced = false;
  };
  static constexpr size_t kRounds = 2;
  // Rounds in flight have lanes of their own: a short one may be reduced before a long one that began earlier.
  static int Inputs(const Round& round) { return 2 * (round.number % 2); }
  static int Results(const Round& round) { return 2 * (round.number % 2) + 1; }

  void StartRound();
  void ReduceRound(Round& round);

  Link link_;
  const SumOrder order_;
  const ReduceOp op_;
  const DType type_;
  const kernel::Scale scale_;
  const Payload* payload_;
  const size_t round_bytes_;
  size_t started_ = 0;  // bytes
  int next_round_ = 0;
  std::deque<Round> rounds_;
};

}  // namespace hvd::collective::pairwise
