// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allreduce across hosts with several members each: summed on each host first, so that a host's data crosses its
// network interface once.
//
// slice owner       One of the first c members of a host, where c is the number of members of the smallest host. Slice
//                   owner k has slice k of every chunk.
// cross-host peers  The slice owners of one slice, one on each host.
// block             A slice owner's slice of one chunk, on its way: summed over the members of the host in their order,
//                   then by direct exchange among the cross-host peers in the order of hosts (pairwise/direct_round.h),
//                   then stored to all members here. kBlocks blocks are in flight, so that all three happen at the same
//                   time.
//
// Cost: for h hosts 2 (h-1)/h n bytes sent and received per host, spread over its slice owners, none of whom does more
// than another; on a host, n bytes read and written per member. A host with more members than slice owners has some
// that only supply and fetch. Each level rounds to the element type once: bits are those of kernel::ReduceGrouped.

#include <deque>
#include <memory>
#include <vector>

#include "hvd/collective/hierarchy/intra_host.h"
#include "hvd/collective/machine.h"
#include "hvd/collective/pairwise/direct_round.h"

namespace hvd::collective::hierarchy {

struct CrossHostPeers {
  int owners = 1;         // per host
  std::vector<int> here;  // the members of this host, by their number in the process set
  std::vector<int>
      by_host;  // the cross-host peers of this slice owner, the same way; empty: this member is no slice owner
  pairwise::Link link{{}, 0, 0};  // to them, by host
};

class HierarchicalReduce final : public Machine {
 public:
  // `payload` stays the caller's until kDone.
  HierarchicalReduce(std::unique_ptr<IntraHost> side, CrossHostPeers peers, ReduceOp op, DType type,
                     kernel::Scale scale, const Payload* payload, std::shared_ptr<ScratchPool> pool);
  ~HierarchicalReduce() override;

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override;
  int Damaged() const override;
  Error error() const override { return peers_.link.error(); }

 private:
  struct Block {
    Block(pairwise::Link* link, const pairwise::Reduction* reduction, const std::shared_ptr<ScratchPool>& pool)
        : sum(pool->Take()), round(link, reduction, pool) {}
    Scratch sum;  // of this host's members; then the result
    Payload payload;
    size_t offset = 0;  // of the slice in the chunk
    pairwise::DirectRound round;
  };
  static constexpr size_t kBlocks = 4;

  bool carries() const { return !peers_.by_host.empty(); }
  bool AllIn(uint64_t chunks) const;
  bool AllOut(uint64_t chunks) const;
  bool StageChunk();
  bool SumChunk();
  bool ExchangeBlock();
  bool DeliverBlock();
  bool FinishChunk();

  const std::unique_ptr<IntraHost> side_;
  CrossHostPeers peers_;
  const kernel::Scale local_scale_;
  const pairwise::Reduction reduction_;  // among cross-host peers
  const Payload* payload_;
  const std::shared_ptr<ScratchPool> pool_;
  const size_t chunks_;
  size_t staged_ = 0;  // chunks that are through each stage
  size_t summed_ = 0;
  size_t delivered_ = 0;
  size_t finished_ = 0;
  std::deque<Block> blocks_;     // of chunks that are summed; the first may be delivered and still be in use by sends
  size_t delivered_blocks_ = 0;  // the first ones of them
  std::vector<const void*> sources_;
};

}  // namespace hvd::collective::hierarchy
