// SPDX-License-Identifier: Apache-2.0
#pragma once
// Allreduce by Adasum (kernel/adasum.h), for any number of members, made of other collectives at consecutive positions.
//
// exchange   Member m receives slice m of every member's vector.
// level      Pairs of vectors (0,1) (2,3) ..., then (0,2) (4,6) ..., then (0,4) ... become one each: every member
//            computes its slices' part of the dot products, an allgather of a few numbers gives the whole products, and
//            every member combines its slices. There are ceil(log2 p) levels; a vector without a partner waits for the
//            next level.
// gather     Every member receives all slices of the result.
//
// Cost: 2 n bytes in and out per member, as an allreduce, and ceil(log2 p) + 2 steps. Sums of parts are formed in
// member order: equal bits everywhere.
//
// Thread safety: call with the progress token.

#include <memory>
#include <vector>

#include "hvd/collective/machine.h"
#include "hvd/comm/communicator.h"
#include "hvd/kernel/adasum.h"

namespace hvd::comm {

inline bool IsAdasum(const Work& work) { return work.op == OpKind::kAllreduce && work.reduce_op == ReduceOp::kAdasum; }

class Adasum final : public collective::Machine {
 public:
  // Positions that one operation takes.
  static uint64_t Positions(int members);

  // `communicator` and `work`, an allreduce of one tensor, outlive the machine.
  Adasum(Communicator* communicator, uint64_t position, const Work* work, int members, int me);

  collective::Progress Step() override;
  void CollectAwaited(std::vector<int>* members) const override;
  Error error() const override { return stage_->error(); }

 private:
  void StartExchange();
  void Load();
  void StartLevel();
  void FinishLevel();
  void StartGather();
  std::byte* Vector(int member) { return vectors_.data() + held_bytes_ * member; }
  size_t SliceBytes(int member) const;

  Communicator* const communicator_;
  uint64_t position_;
  const Work* const work_;
  const int members_;
  const int me_;
  const DType held_;
  const size_t count_;       // elements of my slice
  const size_t held_bytes_;  // of one vector's slice
  int distance_ = 0;         // between partners at this level; 0: exchanging
  bool gathering_ = false;
  Work inner_;
  std::unique_ptr<collective::Machine> stage_;
  std::vector<std::byte> received_;
  std::vector<std::byte> vectors_;  // my slice of every vector that is left, member by member
  std::vector<kernel::Dots> mine_;  // one per pair of this level
  std::vector<kernel::Dots> all_;
  std::vector<std::byte> result_;
};

}  // namespace hvd::comm
