// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/host/hosts_communicator.h"

#include <algorithm>
#include <utility>

#include "hvd/collective/hierarchy/lone_side.h"
#include "hvd/collective/hierarchy/shared_side.h"
#include "hvd/comm/host/window_flow.h"

namespace hvd::comm::host {

using algorithms::Algorithm;
using algorithms::Scope;
using collective::Progress;
using collective::pairwise::Link;

namespace {

// The lanes below are those of the operation itself.
constexpr int kAgreement = 3;
constexpr std::byte kCan{1};

// An allreduce that may be summed on each host: learn whether it is, meet on this host, move the data.
class HostsMachine final : public collective::Machine {
 public:
  HostsMachine(HostsCommunicator* comm, uint64_t position, uint64_t local_position, const Work* work)
      : comm_(comm), position_(position), local_position_(local_position), work_(work) {}

  Progress Step() override {
    if (inner_ == nullptr) {
      const Progress progress = Prepare();
      if (inner_ == nullptr) return progress;
    }
    const Progress progress = inner_->Step();
    if (progress == Progress::kDone && published_) comm_->here()->Release(local_position_);
    return progress;
  }

  void CollectAwaited(std::vector<int>* members) const override {
    if (inner_ != nullptr) return inner_->CollectAwaited(members);
    if (!learned_) return comm_->CollectSilent(members);
    std::vector<int> locals;
    // Without its mark this member waits for slots that others still use.
    published_ ? comm_->here()->CollectMissing(0, local_position_, &locals) : comm_->here()->CollectHolders(&locals);
    for (const int local : locals) members->push_back(comm_->MemberHere(local));
  }

  Error error() const override {
    if (inner_ != nullptr) return inner_->error();
    if (!learned_) return comm_->agreement_error();
    return WindowCommunicator::NoStaging();
  }

 private:
  Progress Prepare() {
    if (!learned_) {
      const Progress progress = comm_->Agree();
      if (progress != Progress::kDone) return progress;
      learned_ = true;
    }
    if (!comm_->agreed()) {
      inner_ = comm_->pairs().Start(position_, work_);
      return Progress::kMoved;
    }
    WindowCommunicator* const here = comm_->here();
    if (here != nullptr) {
      const Progress meeting = here->Meet(local_position_, *work_, &published_);
      if (meeting != Progress::kDone) return meeting;
    }
    inner_ = comm_->Move(position_, local_position_, work_);
    return Progress::kMoved;
  }

  HostsCommunicator* const comm_;
  const uint64_t position_;
  const uint64_t local_position_;
  const Work* const work_;
  bool learned_ = false;
  bool published_ = false;
  std::unique_ptr<collective::Machine> inner_;
};

}  // namespace

collective::window::Staging HostsCommunicator::StagingBy(const algorithms::Table& table, int members) {
  collective::window::Staging staging;
  staging.depth = 4;  // covers the time for which a busy member is away
  for (const auto& choice : table.For(OpKind::kAllreduce, Scope::kMixed, members)) {
    if (choice.algorithm == Algorithm::kTwinReduce) staging.chunk_bytes = choice.parameters.chunk;
  }
  return staging;
}

HostsCommunicator::HostsCommunicator(HostsOptions options, const algorithms::Table& table)
    : options_(std::move(options)),
      pairs_(options_.pairs, table),
      choices_(table.For(OpKind::kAllreduce, Scope::kMixed, static_cast<int>(options_.pairs.pairs.size()))),
      chunk_bytes_(StagingBy(table, static_cast<int>(options_.pairs.pairs.size())).chunk_bytes),
      told_(options_.pairs.pairs.size(), kCan) {
  const auto& order = options_.pairs.order;
  auto member = order.members.begin();
  for (const int size : order.host_sizes) {
    hosts_.emplace_back(member, member + size);
    member += size;
    const auto mine = std::ranges::find(hosts_.back(), options_.pairs.me);
    if (mine == hosts_.back().end()) continue;
    my_host_ = static_cast<int>(hosts_.size()) - 1;
    my_local_ = static_cast<int>(mine - hosts_.back().begin());
  }
  carriers_ = *std::ranges::min_element(order.host_sizes);
  const bool can = options_.here != nullptr || hosts_[my_host_].size() == 1;
  if (!can) told_[options_.pairs.me] = std::byte{0};
}

std::unique_ptr<collective::Machine> HostsCommunicator::Start(uint64_t position, const Work* work) {
  const size_t bytes = work->payload.bytes();
  if (work->op != OpKind::kAllreduce || bytes == 0 ||
      algorithms::Pick(choices_, bytes).algorithm != Algorithm::kTwinReduce) {
    return pairs_.Start(position, work);
  }
  if (agreement_ == nullptr) BeginAgreement(position);
  RecutHere(position);
  return std::make_unique<HostsMachine>(this, position, next_local_position_++, work);
}

void HostsCommunicator::Retune(uint64_t from, uint64_t oldest, const algorithms::Table& table) {
  const size_t chunk = StagingBy(table, static_cast<int>(told_.size())).chunk_bytes;
  pairs_.Retune(from, oldest, table);
  chunk_bytes_.Set(from, oldest, chunk);
  if (options_.here == nullptr) return;
  changes_here_.push_back({from, chunk, Places(table, static_cast<int>(hosts_[my_host_].size()), false)});
}

void HostsCommunicator::RecutHere(uint64_t position) {
  for (; !changes_here_.empty() && changes_here_.front().from <= position; changes_here_.pop_front()) {
    options_.here->Recut(next_local_position_, changes_here_.front().chunk_bytes, changes_here_.front().places);
  }
}

void HostsCommunicator::BeginAgreement(uint64_t position) {
  agreement_ = std::make_unique<Link>(pairs_.LinkAt(position));
  for (int m = 0; m < agreement_->members(); ++m) {
    if (m == agreement_->me()) continue;
    agreement_->Send(m, kAgreement, {{&told_[agreement_->me()], 1}});
    agreement_->Recv(m, kAgreement, {{&told_[m], 1}}, untold_);
  }
}

Progress HostsCommunicator::Agree() {
  if (agreement_->failed()) return Progress::kFailed;
  if (*untold_ > 0 || agreement_->sending() > 0) return Progress::kWaiting;
  agreed_ = std::ranges::all_of(told_, [](std::byte told) { return told == kCan; });
  return Progress::kDone;
}

collective::hierarchy::Twins HostsCommunicator::TwinsAt(uint64_t position) const {
  collective::hierarchy::Twins twins;
  twins.carriers = carriers_;
  twins.here = hosts_[my_host_];
  if (my_local_ >= carriers_) return twins;
  std::vector<transport::Pair*> pairs;
  for (const auto& host : hosts_) {
    twins.by_host.push_back(host[my_local_]);
    pairs.push_back(options_.pairs.pairs[host[my_local_]]);
  }
  twins.link = Link(std::move(pairs), my_host_, pairs_.LaneAt(position));
  return twins;
}

std::unique_ptr<collective::Machine> HostsCommunicator::Move(uint64_t position, uint64_t local_position,
                                                             const Work* work) {
  const size_t chunk_bytes = chunk_bytes_.At(position);
  std::unique_ptr<collective::hierarchy::HostSide> side;
  if (options_.here != nullptr) {
    side = std::make_unique<collective::hierarchy::SharedSide>(options_.here->MeetingAt(local_position));
    CountReduceFlow(*work, my_local_, chunk_bytes, carriers_, options_.flows);
  } else {
    side = std::make_unique<collective::hierarchy::LoneSide>(&work->payload, chunk_bytes, pairs_.shelf());
  }
  return std::make_unique<collective::hierarchy::TwinReduce>(std::move(side), TwinsAt(position), work->reduce_op,
                                                             work->dtype, work->scale, &work->payload, pairs_.shelf());
}

}  // namespace hvd::comm::host
