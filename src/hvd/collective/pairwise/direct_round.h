// SPDX-License-Identifier: Apache-2.0
#pragma once
// One round of a direct exchange: member m owns slice m of it; all send it their slices, it reduces them in the order
// of the rank layout and sends the result to all.
//
// Rounds of one operation follow each other on two lanes, inputs and results. They may overlap, but they are started
// and reduced in order, on every member. Lifetime: the payload and the reduction outlive the round.

#include <memory>

#include "hvd/base/types.h"
#include "hvd/collective/pairwise/link.h"
#include "hvd/collective/scratch_pool.h"
#include "hvd/kernel/kernel.h"

namespace hvd::collective::pairwise {

// What is done to the elements, and in which order members come.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  DType type = DType::kUInt8;
  kernel::Scale scale;
  SumOrder order;
};

class DirectRound {
 public:
  DirectRound(Link* link, const Reduction* reduction, std::shared_ptr<ScratchPool> pool);
  ~DirectRound();
  DirectRound(const DirectRound&) = delete;
  DirectRound& operator=(const DirectRound&) = delete;

  // Exchanges bytes [begin, begin + bytes) of the payload's inputs. If that is converted, Unpack stores the results.
  void Start(const Payload* payload, size_t begin, size_t bytes);
  bool CanReduce() const { return !reduced_ && *inputs_missing_ == 0; }
  // Of what this member owns; the result goes to its own output and to everybody.
  void Reduce();
  bool reduced() const { return reduced_; }
  // Whether the outputs are written.
  bool complete() const { return reduced_ && *results_missing_ == 0; }
  // Whether, besides, nothing of the round is in use any more.
  bool over() const { return complete() && *sends_left_ == 0; }
  // When it is over.
  void Unpack() const;

 private:
  Link* const link_;
  const Reduction* const reduction_;
  const std::shared_ptr<ScratchPool> pool_;
  const Payload* payload_ = nullptr;
  size_t begin_ = 0;     // of the round, in the run
  size_t my_begin_ = 0;  // of my slice
  size_t my_bytes_ = 0;
  Scratch versions_;  // of my slice, member by member
  Scratch spare_;     // for results that nobody here wants, or that are in several pieces
  // Of a converted payload: the round's part of it as it travels, which then is the payload.
  Payload packed_;
  Scratch packed_memory_;
  const Payload* unpacked_ = nullptr;
  size_t unpacked_begin_ = 0;
  // Shared with completions, which may come after the round's end where a pair was closed.
  std::shared_ptr<int> inputs_missing_ = std::make_shared<int>(0);
  std::shared_ptr<int> results_missing_ = std::make_shared<int>(0);
  std::shared_ptr<int> sends_left_ = std::make_shared<int>(0);
  bool reduced_ = false;
};

}  // namespace hvd::collective::pairwise
