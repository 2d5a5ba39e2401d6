// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allgather by direct exchange: every member sends its data to every other.
//
// Cost: (p-1) n_m bytes sent by member m, one step.

#include "hvd/collective/machine.h"
#include "hvd/collective/pairwise/link.h"

namespace hvd::collective::pairwise {

class Gather final : public Machine {
 public:
  // `targets[m]` receives member m's bytes; its own entry, too. A nullptr target with bytes > 0 is received and
  // dropped.
  struct Target {
    std::byte* to = nullptr;
    size_t bytes = 0;
  };
  Gather(Link link, std::vector<Target> targets, const Payload* payload);

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override { link_.CollectAwaited(members); }
  Error error() const override { return link_.error(); }

 private:
  Link link_;
  std::vector<Target> targets_;
  const Payload* payload_;
  bool started_ = false;
  std::shared_ptr<int> missing_ = std::make_shared<int>(0);
  std::vector<std::byte> discard_;
};

}  // namespace hvd::collective::pairwise
