// SPDX-License-Identifier: Apache-2.0
#pragma once
// The only member on this host: its own buffers where they are in one piece and travel as they are, else private
// memory.

#include "hvd/collective/hierarchy/intra_host.h"
#include "hvd/collective/payload.h"
#include "hvd/collective/scratch_pool.h"

namespace hvd::collective::hierarchy {

class IntraHostSingle final : public IntraHost {
 public:
  // `payload` stays the caller's until the operation is over.
  IntraHostSingle(const Payload* payload, size_t chunk_bytes, std::shared_ptr<ScratchPool> pool)
      : payload_(payload), chunk_bytes_(chunk_bytes), pool_(std::move(pool)) {
    const auto& pieces = payload->pieces();
    staged_ = pieces.size() != 1 || pieces[0].out == nullptr || payload->converted();
    if (!staged_) return;
    ring_ = pool_->Take();
    ring_.Need(chunk_bytes_ * kDepth);
  }
  ~IntraHostSingle() override { pool_->Leave(std::move(ring_)); }

  int members() const override { return 1; }
  int me() const override { return 0; }
  size_t chunk_bytes() const override { return chunk_bytes_; }
  bool copied_in() const override { return staged_; }
  bool copied_out() const override { return staged_; }
  size_t depth() const override { return kDepth; }
  std::byte* Source(int, size_t chunk) const override {
    return staged_ ? InRing(chunk) : const_cast<std::byte*>(payload_->pieces()[0].in) + chunk * chunk_bytes_;
  }
  std::byte* Target(int, size_t chunk) const override {
    return staged_ ? InRing(chunk) : payload_->pieces()[0].out + chunk * chunk_bytes_;
  }
  uint64_t In(int) const override { return staged_ ? in_ : UINT64_MAX; }
  uint64_t Out(int) const override { return out_; }
  void PublishIn(uint64_t chunks) override { in_ = chunks; }
  void PublishOut(uint64_t chunks) override { out_ = chunks; }

 private:
  static constexpr size_t kDepth = 4;
  std::byte* InRing(size_t chunk) const { return ring_.data() + chunk % kDepth * chunk_bytes_; }

  const Payload* payload_;
  const size_t chunk_bytes_;
  const std::shared_ptr<ScratchPool> pool_;
  bool staged_ = false;
  Scratch ring_;
  uint64_t in_ = 0;
  uint64_t out_ = 0;
};

}  // namespace hvd::collective::hierarchy
