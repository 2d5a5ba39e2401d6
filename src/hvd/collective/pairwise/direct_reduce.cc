// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/direct_reduce.h"

#include <algorithm>
#include <utility>

namespace hvd::collective::pairwise {

DirectReduce::DirectReduce(Link link, Reduction reduction, const Payload* payload, Rounds cut,
                           std::shared_ptr<ScratchPool> pool)
    : link_(std::move(link)), reduction_(std::move(reduction)), payload_(payload), cut_(cut), pool_(std::move(pool)) {}

Progress DirectReduce::Step() {
  if (link_.failed()) return Progress::kFailed;
  bool moved = false;
  while (started_ < payload_->bytes() && rounds_.size() < cut_.in_flight) {
    const size_t bytes = std::min(cut_.bytes, payload_->bytes() - started_);
    rounds_.emplace_back(&link_, &reduction_, pool_).Start(payload_, started_, bytes);
    started_ += bytes;
    moved = true;
  }
  const auto next = std::find_if(rounds_.begin(), rounds_.end(), [](const auto& round) { return !round.reduced(); });
  if (next != rounds_.end() && next->CanReduce()) {
    next->Reduce();
    moved = true;
  }
  while (!rounds_.empty() && rounds_.front().over()) {
    rounds_.front().Unpack();
    rounds_.pop_front();
    moved = true;
  }
  if (rounds_.empty() && started_ == payload_->bytes()) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kWaiting;
}

}  // namespace hvd::collective::pairwise
