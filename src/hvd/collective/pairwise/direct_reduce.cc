// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/direct_reduce.h"

#include <algorithm>
#include <utility>

namespace hvd::collective::pairwise {

DirectReduce::DirectReduce(Link link, Reduction reduction, const Payload* payload, size_t round_bytes,
                           std::shared_ptr<ScratchShelf> shelf)
    : link_(std::move(link)),
      reduction_(std::move(reduction)),
      payload_(payload),
      round_bytes_(std::max<size_t>(round_bytes / 64 * 64, 64)),
      shelf_(std::move(shelf)) {}

Progress DirectReduce::Step() {
  if (link_.failed()) return Progress::kFailed;
  bool moved = false;
  if (started_ < payload_->bytes() && rounds_.size() < kRounds) {
    const size_t bytes = std::min(round_bytes_, payload_->bytes() - started_);
    rounds_.emplace_back(&link_, &reduction_, shelf_).Start(payload_, started_, bytes);
    started_ += bytes;
    moved = true;
  }
  const auto next = std::find_if(rounds_.begin(), rounds_.end(), [](const auto& round) { return !round.reduced(); });
  if (next != rounds_.end() && next->CanReduce()) {
    next->Reduce();
    moved = true;
  }
  while (!rounds_.empty() && rounds_.front().over()) {
    rounds_.pop_front();
    moved = true;
  }
  if (rounds_.empty() && started_ == payload_->bytes()) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kWaiting;
}

}  // namespace hvd::collective::pairwise
