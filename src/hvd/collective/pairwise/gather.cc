// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/gather.h"

#include <algorithm>

namespace hvd::collective::pairwise {

Gather::Gather(Link link, std::vector<Target> targets, const Payload* payload)
    : link_(std::move(link)), targets_(std::move(targets)), payload_(payload) {}

Progress Gather::Step() {
  if (link_.failed()) return Progress::kFailed;
  if (!started_) {
    started_ = true;
    size_t dropped = 0;
    for (const Target& target : targets_) {
      if (target.to == nullptr) dropped = std::max(dropped, target.bytes);
    }
    discard_.resize(dropped);
    for (int i = 1; i < link_.members(); ++i) {
      const int m = (link_.me() + i) % link_.members();
      if (payload_->bytes() > 0) link_.Send(m, 0, InputBytes(*payload_, 0, payload_->bytes()));
      const Target& target = targets_[m];
      if (target.bytes == 0) continue;
      ++*missing_;
      link_.Recv(m, 0, {{target.to != nullptr ? target.to : discard_.data(), target.bytes}}, missing_);
    }
    const Target& mine = targets_[link_.me()];
    if (mine.to != nullptr) payload_->Gather(0, mine.bytes, mine.to);
    return Progress::kMoved;
  }
  return *missing_ == 0 && link_.sending() == 0 ? Progress::kDone : Progress::kWaiting;
}

}  // namespace hvd::collective::pairwise
