// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/one_step.h"

#include <utility>

namespace hvd::collective::pairwise {

OneStep::OneStep(Link link, Reduction reduction, const Payload* payload, std::shared_ptr<ScratchPool> pool)
    : link_(std::move(link)),
      reduction_(std::move(reduction)),
      payload_(payload),
      pool_(std::move(pool)),
      versions_(pool_->Take()) {}

OneStep::~OneStep() {
  // One that ends early may have receives on a closed pair; their memory is not for others.
  if (over()) pool_->Leave(std::move(versions_));
}

Progress OneStep::Step() {
  if (link_.failed()) return Progress::kFailed;
  const bool moved = !started_;
  if (!started_) Start();
  if (!reduced_ && *missing_ == 0) Reduce();
  if (over()) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kWaiting;
}

void OneStep::Start() {
  started_ = true;
  const size_t bytes = payload_->bytes();
  std::byte* const versions = versions_.Need(bytes * (link_.members() + 1));
  // Sent from here: the inputs may be the outputs, which are written as soon as all others' data is there.
  std::byte* const own = versions + bytes * link_.me();
  payload_->Gather(0, bytes, own);
  for (int i = 1; i < link_.members(); ++i) {
    const int m = (link_.me() + i) % link_.members();
    link_.Send(m, 0, {{own, bytes}});
    link_.Recv(m, 0, {{versions + bytes * m, bytes}}, missing_);
  }
}

void OneStep::Reduce() {
  reduced_ = true;
  const size_t bytes = payload_->bytes();
  std::vector<const void*> sources(link_.members());
  for (size_t i = 0; i < sources.size(); ++i) sources[i] = versions_.data() + bytes * reduction_.order.members[i];
  std::byte* const result = versions_.data() + bytes * link_.members();
  void* target = result;
  kernel::ReduceGrouped(reduction_.op, reduction_.type, sources, reduction_.order.host_sizes, {&target, 1},
                        bytes / SizeOf(reduction_.type), reduction_.scale);
  payload_->Scatter(0, bytes, result);
}

}  // namespace hvd::collective::pairwise
