// SPDX-License-Identifier: Apache-2.0
#pragma once
// Results of operations in flight.

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "hvd/cpp/buffer.hpp"
#include "hvd/cpp/error.hpp"
#include "hvd/cpp/names.hpp"

namespace hvd {

// The result of an operation in flight: nothing (future<void>) for operations that write to memory of the caller,
// hvd::buffer for those that make their output.
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
  static_assert(std::is_void_v<T> || std::ranges::contiguous_range<T>);

 public:
  future() noexcept = default;

  // Takes over a handle of hvd_submit.
  explicit future(hvd_handle handle) noexcept : handle_(handle) {}

  future(future&& other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  future& operator=(future&& other) noexcept {
    if (this != &other) {
      drop();
      handle_ = std::exchange(other.handle_, 0);
    }
    return *this;
  }
  ~future() { drop(); }

  // Whether there is an operation whose result was not taken. All functions below need one.
  [[nodiscard]] bool valid() const noexcept { return handle_ != 0; }

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
    const int status = hvd_wait(nullptr, handle_, limit);
    if (status != HVD_OK && status != HVD_IN_PROGRESS && hvd_is_initialized(nullptr) == 0) {
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

  // The output of an operation that has succeeded.
  T take() {
    hvd_output output{};
    output.struct_size = sizeof output;
    const int status = hvd_get_output(nullptr, handle_, &output);
    release();
    if (status != HVD_OK) fail(HVD_INVALID_ARGUMENT, {});  // shut down since it succeeded
    using element_t = typename T::value_type;
    return T::adopt(static_cast<element_t*>(output.data), output.bytes / sizeof(element_t));
  }

  void drop() noexcept {
    if (!valid()) return;
    hvd_output output{};
    output.struct_size = sizeof output;
    const bool good = wait_seconds(-1) == HVD_OK && hvd_get_output(nullptr, handle_, &output) == HVD_OK;
    if (good && output.engine_owned != 0) hvd_free(output.data);
    release();
  }

  void release() noexcept { hvd_release(nullptr, std::exchange(handle_, 0)); }

  hvd_handle handle_ = 0;
};

}  // namespace hvd
