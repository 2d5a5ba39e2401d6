// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allgather and alltoall as one thing: which bytes of whose input go to whom, and where they lie in the result. Pure
// arithmetic over a Work; an allgather is an alltoall in which everybody gets the whole input.

#include <vector>

#include "hvd/collective/pattern/slices.h"
#include "hvd/comm/communicator.h"

namespace hvd::comm {

class ExchangeLayout {
 public:
  // `work` (an allgather or alltoall) as member `me` sees it.
  ExchangeLayout(const Work& work, int me);

  int members() const { return static_cast<int>(incoming_.size()); }
  // The part of this member's input that is for member m.
  collective::pattern::Range Outgoing(int m) const { return outgoing_[m]; }
  // The part of member m's input that is for this member.
  collective::pattern::Range Incoming(int m) const { return incoming_[m]; }
  // Bytes of member m's input that are for anybody.
  size_t Brings(int m) const { return brings_[m]; }
  // Where in the result what comes from member m begins.
  size_t ResultAt(int m) const { return result_at_[m]; }

 private:
  std::vector<collective::pattern::Range> outgoing_;
  std::vector<collective::pattern::Range> incoming_;
  std::vector<size_t> brings_;
  std::vector<size_t> result_at_;
};

}  // namespace hvd::comm
