// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allgather and alltoall by direct exchange: every member sends every other what is for it.
//
// Cost: what member m has for others is sent once per receiver, in one step.

#include "hvd/collective/machine.h"
#include "hvd/collective/pairwise/link.h"
#include "hvd/collective/pattern/slices.h"

namespace hvd::collective::pairwise {

class Exchange final : public Machine {
 public:
  struct Part {
    pattern::Range outgoing;  // of this rank's payload, for that member
    std::byte* to = nullptr;  // where that member's bytes go; nullptr: they are received and dropped
    size_t bytes = 0;         // that come from that member
  };
  // `parts[m]` is for member m; its own entry, too. `payload` stays the caller's until kDone.
  Exchange(Link link, std::vector<Part> parts, const Payload* payload);

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override { link_.CollectAwaited(members); }
  Error error() const override { return link_.error(); }

 private:
  void Start();

  Link link_;
  std::vector<Part> parts_;
  const Payload* payload_;
  bool started_ = false;
  std::shared_ptr<int> missing_ = std::make_shared<int>(0);
  std::vector<std::byte> discard_;
};

}  // namespace hvd::collective::pairwise
