// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/direct_scatter.h"

namespace hvd::collective::pairwise {

DirectScatter::DirectScatter(Link link, Reduction reduction, const std::vector<size_t>& part_bytes, std::byte* to,
                             const Payload* payload, size_t piece_bytes, std::shared_ptr<ScratchPool> pool)
    : link_(std::move(link)),
      reduction_(std::move(reduction)),
      parts_(part_bytes, piece_bytes),
      to_(to),
      payload_(payload),
      pool_(std::move(pool)) {}

Progress DirectScatter::Step() {
  if (link_.failed()) return Progress::kFailed;
  bool moved = false;
  if (started_ < parts_.rounds() && rounds_.size() < kRounds) {
    StartRound();
    moved = true;
  }
  while (!rounds_.empty() && *rounds_.front().missing == 0) {
    ReduceRound(rounds_.front());
    pool_->Leave(std::move(rounds_.front().pieces));
    rounds_.pop_front();
    moved = true;
  }
  if (rounds_.empty() && started_ == parts_.rounds() && link_.sending() == 0) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kWaiting;
}

void DirectScatter::StartRound() {
  Round& round = rounds_.emplace_back();
  round.mine = parts_.Piece(link_.me(), started_);
  const size_t my_bytes = round.mine.size();
  round.pieces = pool_->Take();
  round.pieces.Need(my_bytes * link_.members());
  payload_->Gather(round.mine.begin, my_bytes, round.pieces.data() + my_bytes * link_.me());
  for (int i = 1; i < link_.members(); ++i) {
    const int m = (link_.me() + i) % link_.members();
    const auto theirs = parts_.Piece(m, started_);
    if (theirs.size() > 0) link_.Send(m, 0, InputBytes(*payload_, theirs.begin, theirs.size()));
    if (my_bytes == 0) continue;
    link_.Recv(m, 0, {{round.pieces.data() + my_bytes * m, my_bytes}}, round.missing);
  }
  ++started_;
}

void DirectScatter::ReduceRound(const Round& round) {
  const size_t my_bytes = round.mine.size();
  if (my_bytes == 0 || to_ == nullptr) return;
  std::vector<const void*> sources(link_.members());
  for (size_t i = 0; i < sources.size(); ++i) {
    sources[i] = round.pieces.data() + my_bytes * reduction_.order.members[i];
  }
  void* target = to_ + (round.mine.begin - parts_.begin(link_.me()));
  kernel::ReduceGrouped(reduction_.op, reduction_.type, sources, reduction_.order.host_sizes, {&target, 1},
                        my_bytes / SizeOf(reduction_.type), reduction_.scale);
}

}  // namespace hvd::collective::pairwise
