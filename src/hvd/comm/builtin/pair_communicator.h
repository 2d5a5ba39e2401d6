// SPDX-License-Identifier: Apache-2.0
#pragma once
// Process sets that span hosts, or hosts without shared memory: every member talks to every other over Pairs.

#include <map>

#include "hvd/algorithms/table.h"
#include "hvd/collective/pairwise/link.h"
#include "hvd/collective/scratch_pool.h"
#include "hvd/comm/by_position.h"
#include "hvd/comm/communicator.h"
#include "hvd/transport/pair.h"

namespace hvd::comm::builtin {

struct PairOptions {
  int process_set = 0;
  int me = 0;
  std::vector<transport::Pair*> pairs;  // by member; nullptr for this rank. Not owned
  collective::pairwise::SumOrder order;
  algorithms::Scope scope = algorithms::Scope::kNetwork;
};

class PairCommunicator final : public Communicator {
 public:
  PairCommunicator(PairOptions options, const algorithms::Table& table);
  std::unique_ptr<collective::Machine> Start(uint64_t position, const Work* work) override;
  void Retune(uint64_t from, uint64_t oldest, const algorithms::Table& table) override;
  const ActivityNames& activities() const override { return kTcpActivities; }

  // The first of the four lanes of a position, and a link to all members on them.
  transport::Lane LaneAt(uint64_t position) const;
  collective::pairwise::Link LinkAt(uint64_t position) const;
  const std::shared_ptr<collective::ScratchPool>& pool() const { return pool_; }

 private:
  using Choices = std::map<OpKind, std::vector<algorithms::Choice>>;
  Choices ChoicesOf(const algorithms::Table& table) const;
  // What the table says for so many bytes, which are the same on all members wherever there is a choice.
  const algorithms::Choice& ChoiceFor(uint64_t position, const Work& work) const;

  PairOptions options_;
  ByPosition<Choices> choices_;
  const std::shared_ptr<collective::ScratchPool> pool_ = std::make_shared<collective::ScratchPool>();
};

}  // namespace hvd::comm::builtin
