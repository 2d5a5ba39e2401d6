// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/builtin/mixed_communicator.h"

#include <algorithm>
#include <utility>

#include "hvd/collective/hierarchy/intra_host_shared.h"
#include "hvd/collective/hierarchy/intra_host_single.h"
#include "hvd/collective/pattern/slices.h"
#include "hvd/collective/window/marks.h"
#include "hvd/comm/builtin/window_flow.h"

namespace hvd::comm::builtin {

using algorithms::Algorithm;
using algorithms::Scope;
using collective::Progress;
using collective::pairwise::Link;

namespace {

// The lanes below are those of the operation itself.
constexpr int kAgreement = 3;
// Tensors travel without authentication: a word that is changed on its way is neither of these. Members that read
// different words would move the data in different ways, and wait for each other for ever.
constexpr uint64_t kCan = 0x6a09e667f3bcc908;
constexpr uint64_t kCannot = ~kCan;

// An allreduce that may be summed on each host: learn whether it is, meet on this host, move the data.
class MixedMachine final : public collective::Machine {
 public:
  MixedMachine(MixedCommunicator* comm, uint64_t position, uint64_t local_position, const Work* work)
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

  int Damaged() const override {
    if (inner_ != nullptr) return inner_->Damaged();
    if (!published_) return -1;
    const int local = comm_->here()->Damaged(0, local_position_);
    return local < 0 ? -1 : comm_->MemberHere(local);
  }

  int at_fault() const override { return inner_ == nullptr ? -1 : inner_->at_fault(); }

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
      const Progress view = here->Meet(local_position_, *work_, &published_);
      if (view != Progress::kDone) return view;
    }
    inner_ = comm_->Move(position_, local_position_, work_);
    return Progress::kMoved;
  }

  MixedCommunicator* const comm_;
  const uint64_t position_;
  const uint64_t local_position_;
  const Work* const work_;
  bool learned_ = false;
  bool published_ = false;
  std::unique_ptr<collective::Machine> inner_;
};

}  // namespace

collective::window::Staging MixedCommunicator::StagingBy(const algorithms::Table& table, int members) {
  collective::window::Staging staging;
  staging.depth = 4;  // covers the time for which a busy member is away
  for (const auto& choice : table.For(OpKind::kAllreduce, Scope::kMixed, members)) {
    if (choice.algorithm == Algorithm::kHierarchicalReduce) staging.chunk_bytes = choice.parameters.chunk;
  }
  return staging;
}

MixedCommunicator::MixedCommunicator(MixedOptions options, const algorithms::Table& table)
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
  owners_ = *std::ranges::min_element(order.host_sizes);
  const bool can = options_.here != nullptr || hosts_[my_host_].size() == 1;
  if (!can) told_[options_.pairs.me] = kCannot;
}

std::unique_ptr<collective::Machine> MixedCommunicator::Start(uint64_t position, const Work* work) {
  const size_t bytes = work->payload.bytes();
  if (work->op != OpKind::kAllreduce || bytes == 0 ||
      algorithms::Pick(choices_, bytes).algorithm != Algorithm::kHierarchicalReduce) {
    return pairs_.Start(position, work);
  }
  if (agreement_ == nullptr) BeginAgreement(position);
  RecutHere(position);
  return std::make_unique<MixedMachine>(this, position, next_local_position_++, work);
}

void MixedCommunicator::Retune(uint64_t from, uint64_t oldest, const algorithms::Table& table) {
  const size_t chunk = StagingBy(table, static_cast<int>(told_.size())).chunk_bytes;
  pairs_.Retune(from, oldest, table);
  chunk_bytes_.Set(from, oldest, chunk);
  if (options_.here == nullptr) return;
  changes_here_.push_back({from, chunk, LocationRules(table, static_cast<int>(hosts_[my_host_].size()), false)});
}

void MixedCommunicator::RecutHere(uint64_t position) {
  for (; !changes_here_.empty() && changes_here_.front().from <= position; changes_here_.pop_front()) {
    options_.here->Recut(next_local_position_, changes_here_.front().chunk_bytes, changes_here_.front().locations);
  }
}

void MixedCommunicator::BeginAgreement(uint64_t position) {
  agreement_ = std::make_unique<Link>(pairs_.LinkAt(position));
  for (int m = 0; m < agreement_->members(); ++m) {
    if (m == agreement_->me()) continue;
    agreement_->Send(m, kAgreement, {{reinterpret_cast<std::byte*>(&told_[agreement_->me()]), sizeof kCan}});
    agreement_->Recv(m, kAgreement, {{reinterpret_cast<std::byte*>(&told_[m]), sizeof kCan}}, untold_);
  }
}

Progress MixedCommunicator::Agree() {
  if (agreement_->failed()) return Progress::kFailed;
  if (*untold_ > 0 || agreement_->sending() > 0) return Progress::kWaiting;
  const auto odd = std::ranges::find_if(told_, [](uint64_t told) { return told != kCan && told != kCannot; });
  if (odd != told_.end()) {
    misled_by_ = static_cast<int>(odd - told_.begin());
    return Progress::kFailed;
  }
  agreed_ = std::ranges::all_of(told_, [](uint64_t told) { return told == kCan; });
  return Progress::kDone;
}

Error MixedCommunicator::agreement_error() const {
  if (misled_by_ < 0) return agreement_->error();
  return {Code::kInternal, "what a rank says about the memory of its host was changed on the way"};
}

collective::hierarchy::CrossHostPeers MixedCommunicator::TwinsAt(uint64_t position) const {
  collective::hierarchy::CrossHostPeers peers;
  peers.owners = owners_;
  peers.here = hosts_[my_host_];
  if (my_local_ >= owners_) return peers;
  std::vector<transport::Pair*> pairs;
  for (const auto& host : hosts_) {
    peers.by_host.push_back(host[my_local_]);
    pairs.push_back(options_.pairs.pairs[host[my_local_]]);
  }
  peers.link = Link(std::move(pairs), my_host_, pairs_.LaneAt(position));
  return peers;
}

std::unique_ptr<collective::Machine> MixedCommunicator::Move(uint64_t position, uint64_t local_position,
                                                             const Work* work) {
  const size_t chunk_bytes = chunk_bytes_.At(position);
  std::unique_ptr<collective::hierarchy::IntraHost> side;
  if (options_.here != nullptr) {
    const int bad = options_.here->ReadMarks(local_position, *work);
    collective::window::PositionView view = options_.here->ViewAt(local_position);
    if (bad >= 0) return std::make_unique<collective::window::BadMark>(view, bad, MemberHere(bad));
    view.most_chunks = collective::pattern::ChunkCount(work->payload.bytes(), view.staging.chunk_bytes);
    side = std::make_unique<collective::hierarchy::IntraHostShared>(view);
    CountReduceFlow(*work, my_local_, chunk_bytes, owners_, options_.flows);
  } else {
    side = std::make_unique<collective::hierarchy::IntraHostSingle>(&work->payload, chunk_bytes, pairs_.pool());
  }
  return std::make_unique<collective::hierarchy::HierarchicalReduce>(
      std::move(side), TwinsAt(position), work->reduce_op, work->dtype, work->scale, &work->payload, pairs_.pool());
}

}  // namespace hvd::comm::builtin
