// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/exchange.h"

#include <algorithm>

namespace hvd::collective::pairwise {

Exchange::Exchange(Link link, std::vector<Part> parts, const Payload* payload)
    : link_(std::move(link)), parts_(std::move(parts)), payload_(payload) {}

Progress Exchange::Step() {
  if (link_.failed()) return Progress::kFailed;
  if (!started_) {
    Start();
    return Progress::kMoved;
  }
  return *missing_ == 0 && link_.sending() == 0 ? Progress::kDone : Progress::kWaiting;
}

void Exchange::Start() {
  started_ = true;
  size_t dropped = 0;
  for (const Part& part : parts_) {
    if (part.to == nullptr) dropped = std::max(dropped, part.bytes);
  }
  discard_.resize(dropped);
  for (int i = 1; i < link_.members(); ++i) {
    const int m = (link_.me() + i) % link_.members();
    const Part& part = parts_[m];
    if (part.outgoing.size() > 0) {
      link_.Send(m, 0, InputBytes(*payload_, part.outgoing.begin, part.outgoing.size()));
    }
    if (part.bytes == 0) continue;
    link_.Recv(m, 0, {{part.to != nullptr ? part.to : discard_.data(), part.bytes}}, missing_);
  }
  const Part& mine = parts_[link_.me()];
  if (mine.to != nullptr) payload_->Gather(mine.outgoing.begin, mine.bytes, mine.to);
}

}  // namespace hvd::collective::pairwise
