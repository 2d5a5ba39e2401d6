// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small allreduces: every member sends all of its data to every other, and each reduces everything in the order of the
// rank layout.
//
// Cost: one step; (p-1) n bytes sent and received per member, which is no more than a direct exchange sends where p
// is 2.

#include "hvd/collective/machine.h"
#include "hvd/collective/pairwise/direct_round.h"

namespace hvd::collective::pairwise {

class OneStep final : public Machine {
 public:
  // `payload` stays the caller's until kDone.
  OneStep(Link link, Reduction reduction, const Payload* payload, std::shared_ptr<ScratchPool> pool);
  ~OneStep() override;

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override { link_.CollectAwaited(members); }
  Error error() const override { return link_.error(); }

 private:
  void Start();
  void Reduce();
  bool over() const { return reduced_ && link_.sending() == 0; }

  Link link_;
  const Reduction reduction_;
  const Payload* payload_;
  const std::shared_ptr<ScratchPool> pool_;
  Scratch versions_;  // member by member; and room for the result
  std::shared_ptr<int> missing_ = std::make_shared<int>(0);
  bool started_ = false;
  bool reduced_ = false;
};

}  // namespace hvd::collective::pairwise
