// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/host/pair_communicator.h"

#include "hvd/collective/pairwise/broadcast.h"
#include "hvd/collective/pairwise/direct_reduce.h"
#include "hvd/collective/pairwise/gather.h"

namespace hvd::comm::host {

using collective::pairwise::Link;

namespace {

// The agreement that starts a barrier is the barrier.
class Nothing final : public collective::Machine {
 public:
  collective::Progress Step() override { return collective::Progress::kDone; }
  void CollectAwaited(std::vector<int>*) const override {}
};

}  // namespace

std::unique_ptr<collective::Machine> PairCommunicator::Start(uint64_t position, const Work* work) {
  const auto set = static_cast<transport::Lane>(static_cast<uint32_t>(options_.process_set));
  Link link(options_.pairs, options_.me, (set << 48) | (position << 2));
  switch (work->op) {
    case OpKind::kAllreduce: {
      // Enough per round that every member's slice is a good-sized message.
      const size_t round = options_.chunk_bytes * options_.pairs.size();
      return std::make_unique<collective::pairwise::DirectReduce>(std::move(link), options_.host_sizes, work->reduce_op,
                                                                  work->dtype, work->scale, &work->payload, round);
    }
    case OpKind::kAllgather: {
      std::vector<collective::pairwise::Gather::Target> targets(work->member_bytes.size());
      size_t offset = 0;
      for (size_t m = 0; m < targets.size(); ++m) {
        targets[m].bytes = work->member_bytes[m];
        if (work->gather_to != nullptr) targets[m].to = work->gather_to + offset;
        offset += work->member_bytes[m];
      }
      return std::make_unique<collective::pairwise::Gather>(std::move(link), std::move(targets), &work->payload);
    }
    case OpKind::kBroadcast:
      return std::make_unique<collective::pairwise::Broadcast>(std::move(link), work->root, &work->payload,
                                                               options_.chunk_bytes);
    default:
      return std::make_unique<Nothing>();
  }
}

}  // namespace hvd::comm::host
