// SPDX-License-Identifier: Apache-2.0
#pragma once
// Results of operations in flight.

#include <chrono>
#include <cstddef>
#include <future>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "hvd/cpp/buffer.hpp"
#include "hvd/cpp/error.hpp"
#include "hvd/cpp/names.hpp"

namespace hvd {
namespace detail {

// What an operation gave, as the type that its function returns. Takes memory of the engine over.
template <class T>
struct from_output;

template <element T>
struct from_output<buffer<T>> {
  static buffer<T> make(const hvd_output& output) {
    return buffer<T>::adopt(static_cast<T*>(output.data), output.bytes / sizeof(T));
  }
};
template <>
struct from_output<int> {
  static int make(const hvd_output& output) { return output.number; }
};

// The results of a group.
template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<std::vector<T>> = true;

}  // namespace detail

// The result of an operation in flight, or of a group: nothing (future<void>) for operations that write to memory of
// the caller; for those that make their output hvd::buffer, hvd::received, or a std::vector with one for each member of
// a group.
//
//     std::vector<float> gradient(4, 1.0f);
//     hvd::future<void> pending = hvd::allreduce_async(gradient, {.name = "gradient"});
//     while (pending.wait_for(1ms) != std::future_status::ready) {
//       // other work, not on `gradient`
//     }
//     pending.get();  // throws what went wrong
//
// Lifetime: the ranges given to the operation must stay, unchanged, until it is over. Therefore the destructor waits
// for it, like that of the future of std::async, and drops its result or error: whatever leaves the scope, no memory is
// written after it. Declare futures after the memory that they use. A wait ends when all ranks have submitted the
// operation, when one of them is lost or leaves, or when the time-out of the operation runs out.
template <class T>
class future {
 public:
  future() noexcept = default;

  // Takes over a handle of hvd_submit.
  explicit future(hvd_handle handle) noexcept : valid_(true), first_(handle) {}

  // Takes over the handles of hvd_submit_group. None: a group that is over already.
  explicit future(std::vector<hvd_handle> handles) noexcept
      : valid_(true), first_(handles.empty() ? 0 : handles[0]), group_(std::move(handles)) {}

  future(future&& other) noexcept
      : valid_(std::exchange(other.valid_, false)), first_(other.first_), group_(std::move(other.group_)) {}
  future& operator=(future&& other) noexcept {
    if (this != &other) {
      drop();
      valid_ = std::exchange(other.valid_, false);
      first_ = other.first_;
      group_ = std::move(other.group_);
    }
    return *this;
  }
  ~future() { drop(); }

  // Whether there is an operation whose result was not taken. All functions below need one.
  [[nodiscard]] bool valid() const noexcept { return valid_; }

  // Returns when the operation is over, with success or not.
  void wait() const {
    require();
    wait_seconds(-1);
  }

  // The same, for at most `time`. Never std::future_status::deferred.
  template <class Rep, class Period>
  [[nodiscard]] std::future_status wait_for(const std::chrono::duration<Rep, Period>& time) const {
    require();
    const double limit = std::chrono::duration<double>(time).count();
    return wait_seconds(limit > 0 ? limit : 0) == HVD_IN_PROGRESS ? std::future_status::timeout
                                                                  : std::future_status::ready;
  }

  // The same, until `time`.
  template <class Clock, class Duration>
  [[nodiscard]] std::future_status wait_until(const std::chrono::time_point<Clock, Duration>& time) const {
    return wait_for(time - Clock::now());
  }

  // Waits, then returns the result or throws the operation's error. The future is not valid afterwards.
  T get() {
    require();
    if (const int status = wait_seconds(-1); status != HVD_OK) {
      const std::string text = hvd_last_error();
      release();
      fail(status, text);
    }
    if constexpr (std::is_void_v<T>) {
      release();
    } else {
      return take();
    }
  }

 private:
  void require() const {
    if (!valid()) throw std::future_error(std::future_errc::no_state);
  }

  int wait_seconds(double limit) const noexcept {
    if (first_ == 0) return HVD_OK;
    const int status = hvd_wait(nullptr, first_, limit);
    if (status == HVD_IN_PROGRESS) return status;
    // A group is over as a whole, but marked so one member after the other.
    for (std::size_t i = 1; i < group_.size() && status == HVD_OK; ++i) hvd_wait(nullptr, group_[i], -1);
    if (status != HVD_OK && hvd_is_initialized(nullptr) == 0) {
      // Another thread may be inside shutdown(); the operation is over, and leaves memory alone, when that returns.
      const std::lock_guard lock(detail::shared_state::instance().leaving);
    }
    return status;
  }

  // Arguments were checked when the operation was submitted, so an engine that does not know the handle is another one,
  // or none: the operation ended with the engine that had it.
  [[noreturn]] static void fail(int status, const std::string& text) {
    if (status == HVD_INVALID_ARGUMENT || (status == HVD_FAILED_PRECONDITION && hvd_is_initialized(nullptr) == 0)) {
      throw shutdown_error(errc::shut_down,
                           "Horovod has been shut down: hvd::shutdown() was called while the operation was in flight");
    }
    detail::raise(status, text);
  }

  // The output of an operation, or of a group, that has succeeded.
  T take() {
    if constexpr (detail::is_list<T>) {
      T results;
      for (const hvd_handle handle : group_) results.push_back(take_one<typename T::value_type>(handle));
      release();
      return results;
    } else {
      T result = take_one<T>(first_);
      release();
      return result;
    }
  }

  template <class One>
  One take_one(hvd_handle handle) {
    hvd_output output{};
    output.struct_size = sizeof output;
    if (hvd_get_output(nullptr, handle, &output) != HVD_OK) {  // shut down since it succeeded
      release();
      fail(HVD_INVALID_ARGUMENT, {});
    }
    return detail::from_output<One>::make(output);
  }

  void drop() noexcept {
    if (!valid()) return;
    if (wait_seconds(-1) == HVD_OK) free_output(first_);
    for (std::size_t i = 1; i < group_.size(); ++i) free_output(group_[i]);
    release();
  }

  // Of an operation that is over.
  static void free_output(hvd_handle handle) noexcept {
    hvd_output output{};
    output.struct_size = sizeof output;
    if (hvd_get_output(nullptr, handle, &output) == HVD_OK && output.engine_owned != 0) hvd_free(output.data);
  }

  void release() noexcept {
    if (first_ != 0) hvd_release(nullptr, first_);
    for (std::size_t i = 1; i < group_.size(); ++i) hvd_release(nullptr, group_[i]);
    valid_ = false;
  }

  bool valid_ = false;
  hvd_handle first_ = 0;
  std::vector<hvd_handle> group_;  // all handles of a group, the first included; empty for a single operation
};

}  // namespace hvd
