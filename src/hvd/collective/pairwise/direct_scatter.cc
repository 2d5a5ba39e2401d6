// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/direct_scatter.h"

#include <algorithm>

namespace hvd::collective::pairwise {

DirectScatter::DirectScatter(Link link, SumOrder order, ReduceOp op, DType type, kernel::Scale scale,
                             const std::vector<size_t>& part_bytes, std::byte* to, const Payload* payload,
                             size_t piece_bytes)
    : link_(std::move(link)),
      order_(std::move(order)),
      op_(op),
      type_(type),
      scale_(scale),
      begins_(1, 0),
      to_(to),
      payload_(payload),
      piece_bytes_(std::max<size_t>(piece_bytes / 64 * 64, 64)) {
  for (const size_t bytes : part_bytes) {
    begins_.push_back(begins_.back() + bytes);
    total_rounds_ = std::max(total_rounds_, pattern::ChunkCount(bytes, piece_bytes_));
  }
}

pattern::Range DirectScatter::PieceOf(int member, size_t round) const {
  const auto piece = pattern::Chunk(begins_[member + 1] - begins_[member], piece_bytes_, round);
  return {begins_[member] + piece.begin, begins_[member] + piece.end};
}

Progress DirectScatter::Step() {
  if (link_.failed()) return Progress::kFailed;
  bool moved = false;
  if (started_ < total_rounds_ && rounds_.size() < kRounds) {
    StartRound();
    moved = true;
  }
  while (!rounds_.empty() && *rounds_.front().missing == 0) {
    ReduceRound(rounds_.front());
    rounds_.pop_front();
    moved = true;
  }
  if (rounds_.empty() && started_ == total_rounds_ && link_.sending() == 0) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kWaiting;
}

void DirectScatter::StartRound() {
  Round& round = rounds_.emplace_back();
  round.mine = PieceOf(link_.me(), started_);
  const size_t my_bytes = round.mine.size();
  round.pieces.resize(my_bytes * link_.members());
  payload_->Gather(round.mine.begin, my_bytes, round.pieces.data() + my_bytes * link_.me());
  for (int i = 1; i < link_.members(); ++i) {
    const int m = (link_.me() + i) % link_.members();
    const auto theirs = PieceOf(m, started_);
    if (theirs.size() > 0) link_.Send(m, 0, InputBytes(*payload_, theirs.begin, theirs.size()));
    if (my_bytes == 0) continue;
    ++*round.missing;
    link_.Recv(m, 0, {{round.pieces.data() + my_bytes * m, my_bytes}}, round.missing);
  }
  ++started_;
}

void DirectScatter::ReduceRound(const Round& round) {
  const size_t my_bytes = round.mine.size();
  if (my_bytes == 0 || to_ == nullptr) return;
  std::vector<const void*> sources(link_.members());
  for (size_t i = 0; i < sources.size(); ++i) sources[i] = round.pieces.data() + my_bytes * order_.members[i];
  void* target = to_ + (round.mine.begin - begins_[link_.me()]);
  kernel::ReduceGrouped(op_, type_, sources, order_.host_sizes, {&target, 1}, my_bytes / SizeOf(type_), scale_);
}

}  // namespace hvd::collective::pairwise
