// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/builtin/pair_communicator.h"

#include <algorithm>

#include "hvd/collective/pairwise/broadcast.h"
#include "hvd/collective/pairwise/direct_reduce.h"
#include "hvd/collective/pairwise/direct_scatter.h"
#include "hvd/collective/pairwise/exchange.h"
#include "hvd/collective/pairwise/one_step.h"
#include "hvd/comm/exchange_layout.h"

namespace hvd::comm::builtin {

using collective::pairwise::Link;

namespace {

// With fewer rounds a member that is away for a moment stops the others; more would only take memory.
collective::pairwise::Rounds CutBy(const algorithms::Parameters& parameters, size_t members) {
  const size_t bytes = parameters.slice * members;
  return {bytes, std::clamp<size_t>(parameters.flight / bytes, 4, 16)};
}

// The agreement that starts a barrier is the barrier; and there may be nothing to sum.
class Nothing final : public collective::Machine {
 public:
  collective::Progress Step() override { return collective::Progress::kDone; }
  void CollectAwaited(std::vector<int>*) const override {}
};

// What this member sends to and receives from each of the others.
std::vector<collective::pairwise::Exchange::Part> PartsOf(const Work& work, int me) {
  const ExchangeLayout traffic(work, me);
  std::vector<collective::pairwise::Exchange::Part> parts(traffic.members());
  for (int m = 0; m < traffic.members(); ++m) {
    parts[m].outgoing = traffic.Outgoing(m);
    parts[m].bytes = traffic.Incoming(m).size();
    if (work.result_to != nullptr) parts[m].to = work.result_to + traffic.ResultAt(m);
  }
  return parts;
}

}  // namespace

PairCommunicator::PairCommunicator(PairOptions options, const algorithms::Table& table)
    : options_(std::move(options)), choices_(ChoicesOf(table)) {}

PairCommunicator::Choices PairCommunicator::ChoicesOf(const algorithms::Table& table) const {
  Choices all;
  for (const OpKind op : algorithms::Operations()) {
    auto choices = table.For(op, options_.scope, static_cast<int>(options_.pairs.size()));
    // That one is MixedCommunicator's, and what it cannot do comes here.
    std::erase_if(choices,
                  [](const auto& choice) { return choice.algorithm == algorithms::Algorithm::kHierarchicalReduce; });
    all[op] = std::move(choices);
  }
  return all;
}

void PairCommunicator::Retune(uint64_t from, uint64_t oldest, const algorithms::Table& table) {
  choices_.Set(from, oldest, ChoicesOf(table));
}

const algorithms::Choice& PairCommunicator::ChoiceFor(uint64_t position, const Work& work) const {
  return algorithms::Pick(choices_.At(position).at(work.op), work.payload.bytes());
}

transport::Lane PairCommunicator::LaneAt(uint64_t position) const {
  const auto set = static_cast<transport::Lane>(static_cast<uint32_t>(options_.process_set));
  return (set << 48) | (position << 2);
}

Link PairCommunicator::LinkAt(uint64_t position) const { return Link(options_.pairs, options_.me, LaneAt(position)); }

std::unique_ptr<collective::Machine> PairCommunicator::Start(uint64_t position, const Work* work) {
  Link link = LinkAt(position);
  switch (work->op) {
    case OpKind::kAllreduce: {
      if (work->payload.bytes() == 0) return std::make_unique<Nothing>();
      collective::pairwise::Reduction reduction{work->reduce_op, work->dtype, work->scale, options_.order};
      const algorithms::Choice& choice = ChoiceFor(position, *work);
      if (choice.algorithm == algorithms::Algorithm::kOneStep) {
        return std::make_unique<collective::pairwise::OneStep>(std::move(link), std::move(reduction), &work->payload,
                                                               pool_);
      }
      return std::make_unique<collective::pairwise::DirectReduce>(std::move(link), std::move(reduction), &work->payload,
                                                                  CutBy(choice.parameters, options_.pairs.size()),
                                                                  pool_);
    }
    case OpKind::kAllgather:
    case OpKind::kAlltoall:
      return std::make_unique<collective::pairwise::Exchange>(std::move(link), PartsOf(*work, options_.me),
                                                              &work->payload);
    case OpKind::kReducescatter:
      return std::make_unique<collective::pairwise::DirectScatter>(
          std::move(link), collective::pairwise::Reduction{work->reduce_op, work->dtype, work->scale, options_.order},
          work->member_bytes, work->result_to, &work->payload, ChoiceFor(position, *work).parameters.slice, pool_);
    case OpKind::kBroadcast:
      return std::make_unique<collective::pairwise::Broadcast>(
          std::move(link), options_.order, work->root, &work->payload, ChoiceFor(position, *work).parameters.slice);
    default:
      return std::make_unique<Nothing>();
  }
}

}  // namespace hvd::comm::builtin
