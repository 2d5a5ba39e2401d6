// SPDX-License-Identifier: Apache-2.0
#pragma once
// One value for each member, on the stack unless there are many: a small operation has no time for the heap.

#include <array>
#include <span>
#include <vector>

namespace hvd::collective::window {

template <typename T>
class PerMember {
 public:
  explicit PerMember(int members) {
    const auto count = static_cast<size_t>(members);
    if (count > kOnStack) many_.resize(count);
    all_ = {count > kOnStack ? many_.data() : few_.data(), count};
  }
  PerMember(const PerMember&) = delete;
  PerMember& operator=(const PerMember&) = delete;

  T& operator[](int member) { return all_[static_cast<size_t>(member)]; }
  std::span<const T> all() const { return all_; }

 private:
  static constexpr size_t kOnStack = 64;

  std::array<T, kOnStack> few_;
  std::vector<T> many_;
  std::span<T> all_;
};

}  // namespace hvd::collective::window
