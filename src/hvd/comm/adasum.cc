// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/adasum.h"

#include <bit>

#include "hvd/collective/pattern/slices.h"

namespace hvd::comm {

using collective::Piece;
using collective::Progress;
using collective::pattern::Slice;

uint64_t Adasum::Positions(int members) { return 2 + std::bit_width(static_cast<unsigned>(members - 1)); }

Adasum::Adasum(Communicator* communicator, uint64_t position, const Work* work, int members, int me)
    : communicator_(communicator),
      position_(position),
      work_(work),
      members_(members),
      me_(me),
      held_(kernel::AdasumType(work->dtype)),
      count_(Slice(work->payload.bytes() / SizeOf(work->dtype), SizeOf(work->dtype), members, me).size()),
      held_bytes_(count_ * SizeOf(held_)) {
  StartExchange();
}

size_t Adasum::SliceBytes(int member) const {
  const size_t element = SizeOf(work_->dtype);
  return Slice(work_->payload.bytes() / element, element, members_, member).size() * element;
}

Progress Adasum::Step() {
  const Progress progress = stage_->Step();
  if (progress != Progress::kDone) return progress;
  if (gathering_) return Progress::kDone;
  distance_ == 0 ? Load() : FinishLevel();
  distance_ = distance_ == 0 ? 1 : distance_ * 2;
  distance_ < members_ ? StartLevel() : StartGather();
  return Progress::kMoved;
}

void Adasum::CollectAwaited(std::vector<int>* members) const { stage_->CollectAwaited(members); }

void Adasum::StartExchange() {
  inner_.op = OpKind::kAlltoall;
  inner_.dtype = work_->dtype;
  inner_.direct = work_->direct;
  inner_.payload.Add(Piece{work_->payload.pieces()[0].in, nullptr, work_->payload.bytes()});
  for (int from = 0; from < members_; ++from) {
    for (int to = 0; to < members_; ++to) inner_.exchange_bytes.push_back(SliceBytes(to));
  }
  received_.resize(SliceBytes(me_) * members_);
  inner_.result_to = received_.data();
  stage_ = communicator_->Start(position_++, &inner_);
}

void Adasum::Load() {
  vectors_.resize(held_bytes_ * members_);
  for (int m = 0; m < members_; ++m) {
    kernel::AdasumLoad(work_->dtype, received_.data() + SliceBytes(me_) * m, Vector(m), count_, work_->scale.pre);
  }
  received_ = {};
}

void Adasum::StartLevel() {
  mine_.clear();
  for (int m = 0; m + distance_ < members_; m += 2 * distance_) {
    mine_.push_back(kernel::AdasumDots(held_, Vector(m), Vector(m + distance_), count_));
  }
  const size_t bytes = mine_.size() * sizeof(kernel::Dots);
  all_.assign(mine_.size() * members_, {});
  inner_ = Work{};
  inner_.op = OpKind::kAllgather;
  inner_.direct = work_->direct;
  inner_.payload.Add(Piece{reinterpret_cast<const std::byte*>(mine_.data()), nullptr, bytes});
  inner_.member_bytes.assign(members_, bytes);
  inner_.result_to = reinterpret_cast<std::byte*>(all_.data());
  stage_ = communicator_->Start(position_++, &inner_);
}

void Adasum::FinishLevel() {
  for (size_t pair = 0; pair < mine_.size(); ++pair) {
    kernel::Dots whole;
    for (int m = 0; m < members_; ++m) {
      const kernel::Dots& part = all_[mine_.size() * m + pair];
      whole.ab += part.ab;
      whole.aa += part.aa;
      whole.bb += part.bb;
    }
    const int first = static_cast<int>(pair) * 2 * distance_;
    kernel::AdasumCombine(held_, Vector(first), Vector(first + distance_), count_, whole);
  }
}

void Adasum::StartGather() {
  gathering_ = true;
  result_.resize(SliceBytes(me_));
  kernel::AdasumStore(work_->dtype, Vector(0), result_.data(), count_, work_->scale.post);
  inner_ = Work{};
  inner_.op = OpKind::kAllgather;
  inner_.direct = work_->direct;
  inner_.payload.Add(Piece{result_.data(), nullptr, result_.size()});
  for (int m = 0; m < members_; ++m) inner_.member_bytes.push_back(SliceBytes(m));
  inner_.result_to = work_->payload.pieces()[0].out;
  stage_ = communicator_->Start(position_++, &inner_);
}

}  // namespace hvd::comm
