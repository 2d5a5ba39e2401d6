// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/pairwise/direct_round.h"

#include <utility>

#include "hvd/collective/pattern/slices.h"

namespace hvd::collective::pairwise {
namespace {

constexpr int kInputs = 0;
constexpr int kResults = 1;

}  // namespace

DirectRound::DirectRound(Link* link, const Reduction* reduction, std::shared_ptr<ScratchPool> pool)
    : link_(link), reduction_(reduction), pool_(std::move(pool)), versions_(pool_->Take()), spare_(pool_->Take()) {}

DirectRound::~DirectRound() {
  // One that ends early may have receives on a closed pair; their memory is not for others.
  if (payload_ != nullptr && !over()) return;
  pool_->Leave(std::move(spare_));
  pool_->Leave(std::move(versions_));
  pool_->Leave(std::move(packed_memory_));
}

void DirectRound::Start(const Payload* payload, size_t begin, size_t bytes) {
  const size_t element = SizeOf(reduction_->type);
  const size_t count = bytes / element;
  const auto mine = pattern::Slice(count, element, link_->members(), link_->me());
  if (payload->converted()) {
    packed_memory_ = pool_->Take();
    std::byte* const packed = packed_memory_.Need(bytes);
    payload->Gather(begin, bytes, packed);
    packed_.Add({packed, packed, bytes});
    unpacked_ = std::exchange(payload, &packed_);
    unpacked_begin_ = std::exchange(begin, 0);
  }
  payload_ = payload;
  reduced_ = false;
  begin_ = begin;
  my_begin_ = begin + mine.begin * element;
  my_bytes_ = mine.size() * element;
  std::byte* const versions = versions_.Need(my_bytes_ * link_->members());
  std::byte* const spare = spare_.Need(bytes);
  for (int i = 1; i < link_->members(); ++i) {
    const int m = (link_->me() + i) % link_->members();
    const auto theirs = pattern::Slice(count, element, link_->members(), m);
    const size_t offset = begin + theirs.begin * element;
    const size_t their_bytes = theirs.size() * element;
    if (their_bytes > 0) {
      link_->Send(m, kInputs, InputBytes(*payload_, offset, their_bytes), sends_left_);
      link_->Recv(m, kResults, OutputBytes(*payload_, offset, their_bytes, spare + theirs.begin * element),
                  results_missing_);
    }
    if (my_bytes_ > 0) link_->Recv(m, kInputs, {{versions + my_bytes_ * m, my_bytes_}}, inputs_missing_);
  }
}

void DirectRound::Reduce() {
  reduced_ = true;
  if (my_bytes_ == 0) return;
  // In one piece, data is read and written where it is; else it passes through here.
  std::byte* own = versions_.data() + my_bytes_ * link_->me();
  const std::vector<iovec> in = InputBytes(*payload_, my_begin_, my_bytes_);
  if (in.size() == 1) {
    own = static_cast<std::byte*>(in[0].iov_base);
  } else {
    payload_->Gather(my_begin_, my_bytes_, own);
  }
  // No result of another member has my slice's place in the spare memory.
  std::byte* const spare = spare_.data() + (my_begin_ - begin_);
  const std::vector<iovec> out = OutputBytes(*payload_, my_begin_, my_bytes_, spare);
  void* const target = out.size() == 1 ? out[0].iov_base : spare;
  std::vector<const void*> sources(link_->members());
  for (size_t i = 0; i < sources.size(); ++i) {
    const int m = reduction_->order.members[i];
    sources[i] = m == link_->me() ? own : versions_.data() + my_bytes_ * m;
  }
  kernel::ReduceGrouped(reduction_->op, reduction_->type, sources, reduction_->order.host_sizes, {&target, 1},
                        my_bytes_ / SizeOf(reduction_->type), reduction_->scale);
  if (out.size() > 1) payload_->Scatter(my_begin_, my_bytes_, spare);
  for (int i = 1; i < link_->members(); ++i) {
    link_->Send((link_->me() + i) % link_->members(), kResults, {{target, my_bytes_}}, sends_left_);
  }
}

void DirectRound::Unpack() const {
  if (unpacked_ != nullptr) unpacked_->Scatter(unpacked_begin_, packed_.bytes(), packed_memory_.data());
}

}  // namespace hvd::collective::pairwise
