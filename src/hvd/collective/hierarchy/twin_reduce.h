// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allreduce across hosts with several members each: summed on each host first, so that a host's data crosses its
// network interface once.
//
// carrier  the first c members of a host, where c is the number of members of the smallest host; carrier k has slice k
// of
//          every chunk.
// twins    the carriers of one slice, one on each host.
// block    a carrier's slice of one chunk, on its way: summed over the members of the host in their order, then by
// direct
//          exchange among the twins in the order of hosts (pairwise/direct_round.h), then stored to all members here.
//          kBlocks of them are in flight, so that all three happen at the same time.
//
// Cost: for h hosts 2 (h-1)/h n bytes sent and received per host, spread over its carriers, none of whom does more than
// another; on a host, n bytes read and written per member. A host with more members than carriers has some that only
// supply and fetch. Each level rounds to the element type once: bits are those of kernel::ReduceGrouped.

#include <deque>
#include <memory>
#include <vector>

#include "hvd/collective/hierarchy/host_side.h"
#include "hvd/collective/machine.h"
#include "hvd/collective/pairwise/direct_round.h"

namespace hvd::collective::hierarchy {

struct Twins {
  int carriers = 1;               // per host
  std::vector<int> here;          // the members of this host, by their number in the process set
  std::vector<int> by_host;       // the twins of this carrier, the same way; empty: this member is no carrier
  pairwise::Link link{{}, 0, 0};  // to them, by host
};

class TwinReduce final : public Machine {
 public:
  // `payload` stays the caller's until kDone.
  TwinReduce(std::unique_ptr<HostSide> side, Twins twins, ReduceOp op, DType type, kernel::Scale scale,
             const Payload* payload, std::shared_ptr<ScratchShelf> shelf);
  ~TwinReduce() override;

  Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override;
  Error error() const override { return twins_.link.error(); }

 private:
  struct Block {
    Block(pairwise::Link* link, const pairwise::Reduction* reduction, const std::shared_ptr<ScratchShelf>& shelf)
        : sum(shelf->Take()), round(link, reduction, shelf) {}
    Scratch sum;  // of this host's members; then the result
    Payload payload;
    size_t offset = 0;  // of the slice in the chunk
    pairwise::DirectRound round;
  };
  static constexpr size_t kBlocks = 4;

  bool carries() const { return !twins_.by_host.empty(); }
  bool AllIn(uint64_t chunks) const;
  bool AllOut(uint64_t chunks) const;
  bool StageChunk();
  bool SumChunk();
  bool ExchangeBlock();
  bool DeliverBlock();
  bool FinishChunk();

  const std::unique_ptr<HostSide> side_;
  Twins twins_;
  const kernel::Scale local_scale_;
  const pairwise::Reduction reduction_;  // among twins
  const Payload* payload_;
  const std::shared_ptr<ScratchShelf> shelf_;
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
