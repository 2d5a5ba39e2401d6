// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that the ranks of one host share.

#include <cstddef>
#include <limits>
#include <memory>
#include <utility>

#include "hvd/cpp/element.hpp"
#include "hvd/cpp/error.hpp"

namespace hvd {

// A fixed number of elements in memory that all ranks of this host can reach: operations on it copy nothing. Works
// before init() and outlives shutdown(). A contiguous range, and so a std::span wherever one is wanted.
//
//     hvd::buffer<float> gradient(1000);           // zeros
//     gradient[0] = 1.0f;
//     hvd::allreduce(gradient, {.op = hvd::op::sum});
//     std::span<const float> view = gradient;
//     assert(view.front() == hvd::size() && view.size() == 1000);
//
// Lifetime: may be destroyed while an operation uses it; the memory then goes when that operation is over.
template <element T>
class buffer {
 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using iterator = T*;
  using const_iterator = const T*;

  buffer() noexcept = default;

  // `size` zeros, 64-byte aligned. Throws memory_error when the arena is full.
  explicit buffer(std::size_t size) {
    if (size == 0) return;
    if (size > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
      throw memory_error(errc::resource_exhausted, "hvd::buffer: more elements than there are addresses");
    }
    void* memory = hvd_alloc(size * sizeof(T));
    if (memory == nullptr) detail::raise(hvd_last_status(), hvd_last_error());
    *this = adopt(static_cast<T*>(memory), size);
  }

  // Takes over memory of hvd_alloc or an output that the C interface calls engine_owned.
  //
  //     auto* memory = static_cast<double*>(hvd_alloc(8 * sizeof(double)));
  //     const auto owner = hvd::buffer<double>::adopt(memory, 8);
  //     assert(owner.data() == memory);
  [[nodiscard]] static buffer adopt(T* memory, std::size_t size) noexcept {
    buffer result;
    result.memory_.reset(memory);
    result.size_ = size;
    return result;
  }

  buffer(buffer&& other) noexcept : memory_(std::move(other.memory_)), size_(std::exchange(other.size_, 0)) {}
  buffer& operator=(buffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  [[nodiscard]] T* data() noexcept { return memory_.get(); }
  [[nodiscard]] const T* data() const noexcept { return memory_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  [[nodiscard]] T* begin() noexcept { return data(); }
  [[nodiscard]] T* end() noexcept { return data() + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data(); }
  [[nodiscard]] const T* end() const noexcept { return data() + size_; }

  [[nodiscard]] T& operator[](std::size_t index) noexcept { return data()[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data()[index]; }

 private:
  struct release {
    void operator()(T* memory) const noexcept { hvd_free(memory); }
  };
  std::unique_ptr<T, release> memory_;
  std::size_t size_ = 0;
};

}  // namespace hvd
