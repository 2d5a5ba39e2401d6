// SPDX-License-Identifier: Apache-2.0
#pragma once
// Private memory that machines work in. It is not cleared, and it is kept from one operation to the next: fresh pages
// cost more than what is done with them.
//
// Thread safety: call with the progress token.

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace hvd::collective {

class Scratch {
 public:
  // At least `bytes` bytes with any content; what was there before is lost if it must grow.
  std::byte* Need(size_t bytes) {
    if (bytes > bytes_) {
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      bytes_ = bytes;
    }
    return memory_.get();
  }
  std::byte* data() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t bytes_ = 0;
};

// Where machines that end leave their scratch memory for those that begin.
class ScratchPool {
 public:
  Scratch Take() {
    if (kept_.empty()) return {};
    Scratch scratch = std::move(kept_.back());
    kept_.pop_back();
    return scratch;
  }
  void Leave(Scratch scratch) {
    if (scratch.data() != nullptr && kept_.size() < kMost) kept_.push_back(std::move(scratch));
  }

 private:
  static constexpr size_t kMost = 48;
  std::vector<Scratch> kept_;
};

}  // namespace hvd::collective
