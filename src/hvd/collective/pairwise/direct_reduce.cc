// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/direct_reduce.h"

#include <algorithm>

#include "hvd/collective/pattern/slices.h"

namespace hvd::collective::pairwise {
DirectReduce::DirectReduce(Link link, SumOrder order, ReduceOp op, DType type, kernel::Scale scale,
                           const Payload* payload, size_t round_bytes)
    : link_(std::move(link)),
      order_(std::move(order)),
      op_(op),
      type_(type),
      scale_(scale),
      payload_(payload),
      round_bytes_(std::max<size_t>(round_bytes / 64 * 64, 64)) {}

Progress DirectReduce::Step() {
  if (link_.failed()) return Progress::kFailed;
  bool moved = false;
  if (started_ < payload_->bytes() && rounds_.size() < kRounds) {
    StartRound();
    moved = true;
  }
  for (Round& round : rounds_) {
    if (round.reduced || *round.inputs_missing > 0) continue;
    ReduceRound(round);
    moved = true;
    break;
  }
  while (!rounds_.empty() && rounds_.front().reduced && *rounds_.front().results_missing == 0 && link_.sending() == 0) {
    rounds_.pop_front();
    moved = true;
  }
  if (rounds_.empty() && started_ == payload_->bytes()) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kWaiting;
}

void DirectReduce::StartRound() {
  const size_t element = SizeOf(type_);
  rounds_.emplace_back();
  Round& round = rounds_.back();
  round.number = next_round_++;
  round.begin = started_;
  round.bytes = std::min(round_bytes_, payload_->bytes() - started_);
  started_ += round.bytes;
  const size_t count = round.bytes / element;
  const auto mine = pattern::Slice(count, element, link_.members(), link_.me());
  const size_t my_bytes = mine.size() * element;
  round.slices.resize(my_bytes * link_.members());
  round.result.resize(my_bytes);
  round.discard.resize(round.bytes);
  payload_->Gather(round.begin + mine.begin * element, my_bytes, round.slices.data() + my_bytes * link_.me());
  for (int i = 1; i < link_.members(); ++i) {
    const int m = (link_.me() + i) % link_.members();
    const auto theirs = pattern::Slice(count, element, link_.members(), m);
    const size_t offset = round.begin + theirs.begin * element;
    if (theirs.size() > 0) {
      link_.Send(m, Inputs(round), InputBytes(*payload_, offset, theirs.size() * element));
      ++*round.results_missing;
      link_.Recv(m, Results(round),
                 OutputBytes(*payload_, offset, theirs.size() * element, round.discard.data() + theirs.begin * element),
                 round.results_missing);
    }
    if (my_bytes > 0) {
      ++*round.inputs_missing;
      link_.Recv(m, Inputs(round), {{round.slices.data() + my_bytes * m, my_bytes}}, round.inputs_missing);
    }
  }
}

void DirectReduce::ReduceRound(Round& round) {
  round.reduced = true;
  const size_t element = SizeOf(type_);
  const auto mine = pattern::Slice(round.bytes / element, element, link_.members(), link_.me());
  const size_t my_bytes = mine.size() * element;
  if (my_bytes == 0) return;
  std::vector<const void*> sources(link_.members());
  for (size_t i = 0; i < sources.size(); ++i) sources[i] = round.slices.data() + my_bytes * order_.members[i];
  void* target = round.result.data();
  kernel::ReduceGrouped(op_, type_, sources, order_.host_sizes, {&target, 1}, mine.size(), scale_);
  payload_->Scatter(round.begin + mine.begin * element, my_bytes, round.result.data());
  for (int i = 1; i < link_.members(); ++i) {
    link_.Send((link_.me() + i) % link_.members(), Results(round), {{round.result.data(), my_bytes}});
  }
}

}  // namespace hvd::collective::pairwise
