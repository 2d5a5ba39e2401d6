// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/hierarchy/hierarchical_reduce.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "hvd/collective/pattern/slices.h"

namespace hvd::collective::hierarchy {
namespace {

// Hosts one after the other. What they bring is rounded already, so one group says it.
pairwise::SumOrder HostOrder(size_t hosts) {
  pairwise::SumOrder order;
  order.members.resize(hosts);
  std::iota(order.members.begin(), order.members.end(), 0);
  order.host_sizes = {static_cast<int>(hosts)};
  return order;
}

}  // namespace

HierarchicalReduce::HierarchicalReduce(std::unique_ptr<IntraHost> side, CrossHostPeers peers, ReduceOp op, DType type,
                                       kernel::Scale scale, const Payload* payload, std::shared_ptr<ScratchPool> pool)
    : side_(std::move(side)),
      peers_(std::move(peers)),
      local_scale_{scale.pre, 1.0},
      reduction_{op, type, {1.0, scale.post}, HostOrder(peers_.by_host.size())},
      payload_(payload),
      pool_(std::move(pool)),
      chunks_(pattern::ChunkCount(payload->bytes(), side_->chunk_bytes())),
      sources_(side_->members()) {
  if (!side_->copied_in()) staged_ = chunks_;
}

HierarchicalReduce::~HierarchicalReduce() {
  // With a closed pair's transfers pending, memory that they refer to is not for others.
  for (Block& block : blocks_) {
    if (block.round.over()) pool_->Leave(std::move(block.sum));
  }
}

Progress HierarchicalReduce::Step() {
  if (peers_.link.failed()) return Progress::kFailed;
  // Finishing first frees places; staging before summing keeps the others supplied; what is on the wire comes last,
  // because it has something to do meanwhile.
  const bool finished = FinishChunk();
  const bool staged = StageChunk();
  const bool summed = SumChunk();
  const bool exchanged = ExchangeBlock();
  const bool delivered = DeliverBlock();
  if (finished_ == chunks_ && blocks_.empty()) return Progress::kDone;
  return finished || staged || summed || exchanged || delivered ? Progress::kMoved : Progress::kWaiting;
}

bool HierarchicalReduce::AllIn(uint64_t chunks) const {
  for (int m = 0; m < side_->members(); ++m) {
    if (side_->In(m) < chunks) return false;
  }
  return true;
}

bool HierarchicalReduce::AllOut(uint64_t chunks) const {
  for (int m = 0; m < peers_.owners; ++m) {
    if (side_->Out(m) < chunks) return false;
  }
  return true;
}

bool HierarchicalReduce::StageChunk() {
  // A place is free again when its last result was copied out, which is after every slice owner finished with it.
  if (staged_ == chunks_ || staged_ >= finished_ + side_->depth()) return false;
  const auto range = pattern::Chunk(payload_->bytes(), side_->chunk_bytes(), staged_);
  payload_->Gather(range.begin, range.size(), side_->Source(side_->me(), staged_));
  side_->PublishIn(++staged_);
  return true;
}

bool HierarchicalReduce::SumChunk() {
  if (!carries() || summed_ == chunks_ || blocks_.size() == kBlocks || !AllIn(summed_ + 1)) return false;
  const auto range = pattern::Chunk(payload_->bytes(), side_->chunk_bytes(), summed_);
  const size_t element = SizeOf(reduction_.type);
  const auto slice = pattern::Slice(range.size() / element, element, peers_.owners, side_->me());
  const size_t bytes = slice.size() * element;
  Block& block = blocks_.emplace_back(&peers_.link, &reduction_, pool_);
  block.offset = slice.begin * element;
  std::byte* const sum = block.sum.Need(std::max<size_t>(bytes, 1));
  for (int m = 0; m < side_->members(); ++m) sources_[m] = side_->Source(m, summed_) + block.offset;
  void* target = sum;
  kernel::Reduce(reduction_.op, reduction_.type, sources_, {&target, 1}, slice.size(), local_scale_);
  block.payload.Add({sum, sum, bytes});
  block.round.Start(&block.payload, 0, bytes);
  ++summed_;
  return true;
}

bool HierarchicalReduce::ExchangeBlock() {
  const auto next =
      std::find_if(blocks_.begin(), blocks_.end(), [](const Block& block) { return !block.round.reduced(); });
  if (next == blocks_.end() || !next->round.CanReduce()) return false;
  next->round.Reduce();
  return true;
}

bool HierarchicalReduce::DeliverBlock() {
  bool moved = false;
  if (delivered_blocks_ < blocks_.size() && blocks_[delivered_blocks_].round.complete()) {
    const Block& block = blocks_[delivered_blocks_++];
    for (int m = 0; m < side_->members(); ++m) {
      kernel::Copy(side_->Target(m, delivered_) + block.offset, block.sum.data(), block.payload.bytes());
    }
    side_->PublishOut(++delivered_);
    moved = true;
  }
  while (delivered_blocks_ > 0 && blocks_.front().round.over()) {
    pool_->Leave(std::move(blocks_.front().sum));
    blocks_.pop_front();
    --delivered_blocks_;
    moved = true;
  }
  return moved;
}

bool HierarchicalReduce::FinishChunk() {
  if (finished_ == chunks_ || !AllOut(finished_ + 1)) return false;
  if (side_->copied_out()) {
    const auto range = pattern::Chunk(payload_->bytes(), side_->chunk_bytes(), finished_);
    payload_->Scatter(range.begin, range.size(), side_->Target(side_->me(), finished_));
  }
  ++finished_;
  return true;
}

int HierarchicalReduce::Damaged() const {
  const int member = side_->Damaged();
  return member < 0 ? -1 : peers_.here[member];
}

void HierarchicalReduce::CollectAwaited(std::vector<int>* members) const {
  std::vector<int> hosts;
  peers_.link.CollectAwaited(&hosts);
  for (const int host : hosts) members->push_back(peers_.by_host[host]);
  for (int m = 0; m < side_->members(); ++m) {
    if (m == side_->me()) continue;
    const bool supplies = !carries() || side_->In(m) >= std::min(summed_ + 1, chunks_);
    const bool delivers = m >= peers_.owners || side_->Out(m) >= std::min(finished_ + 1, chunks_);
    if (!supplies || !delivers) members->push_back(peers_.here[m]);
  }
}

}  // namespace hvd::collective::hierarchy
