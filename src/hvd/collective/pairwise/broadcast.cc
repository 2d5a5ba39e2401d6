// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/broadcast.h"

#include "hvd/collective/pattern/slices.h"

namespace hvd::collective::pairwise {

Broadcast::Broadcast(Link link, const SumOrder& order, int root, const Payload* payload, size_t chunk_bytes)
    : link_(std::move(link)),
      place_(pattern::HostTree(order.members, order.host_sizes, root, link_.me())),
      payload_(payload),
      chunk_bytes_(chunk_bytes),
      chunks_(pattern::ChunkCount(payload->bytes(), chunk_bytes)) {
  bool wanted = true;
  for (const Piece& piece : payload->pieces()) wanted = wanted && piece.out != nullptr;
  if (place_.parent >= 0 && !wanted) kept_.resize(payload->bytes());
}

std::vector<iovec> Broadcast::Chunk(size_t index) {
  const auto range = pattern::Chunk(payload_->bytes(), chunk_bytes_, index);
  if (place_.parent < 0) return InputBytes(*payload_, range.begin, range.size());
  if (!kept_.empty()) return {{kept_.data() + range.begin, range.size()}};
  return OutputBytes(*payload_, range.begin, range.size(), nullptr);
}

void Broadcast::CopyOwn(size_t index) {
  const auto range = pattern::Chunk(payload_->bytes(), chunk_bytes_, index);
  const Piece& piece = payload_->pieces()[0];
  if (piece.out != nullptr && piece.out != piece.in) {
    payload_->Scatter(range.begin, range.size(), piece.in + range.begin);
  }
}

Progress Broadcast::Step() {
  if (link_.failed()) return Progress::kFailed;
  bool moved = false;
  if (place_.parent >= 0 && posted_ < chunks_) {
    arrived_.push_back(std::make_shared<int>(0));
    link_.Recv(place_.parent, 0, Chunk(posted_++), arrived_.back());
    moved = true;
  }
  if (forwarded_ < chunks_ && (place_.parent < 0 || (forwarded_ < posted_ && *arrived_[forwarded_] == 0))) {
    for (int child : place_.children) link_.Send(child, 0, Chunk(forwarded_));
    if (place_.parent < 0) CopyOwn(forwarded_);
    ++forwarded_;
    moved = true;
  }
  if (forwarded_ == chunks_ && link_.sending() == 0) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kWaiting;
}

}  // namespace hvd::collective::pairwise
