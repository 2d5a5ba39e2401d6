// SPDX-License-Identifier: Apache-2.0
#pragma once
// Status codes of the C interface as exceptions.

#include <stdexcept>
#include <string>

#include "hvd/hvd.h"

namespace hvd {

// Why something failed; the numbers of hvd.h.
enum class errc : int {
  shut_down = HVD_UNKNOWN,  // a peer was lost or left, or this rank shut down
  invalid_argument = HVD_INVALID_ARGUMENT,
  deadline_exceeded = HVD_DEADLINE_EXCEEDED,
  not_found = HVD_NOT_FOUND,
  permission_denied = HVD_PERMISSION_DENIED,
  resource_exhausted = HVD_RESOURCE_EXHAUSTED,
  failed_precondition = HVD_FAILED_PRECONDITION,
  aborted = HVD_ABORTED,
  unimplemented = HVD_UNIMPLEMENTED,
  internal = HVD_INTERNAL,
};

// Base of everything that this library throws. what() names rank, operation, tensor and what to do.
//
//     try {
//       (void)hvd::broadcast(1.0, /*root=*/99);
//     } catch (const hvd::error& e) {
//       assert(e.code() == hvd::errc::invalid_argument);
//     }
class error : public std::runtime_error {
 public:
  error(errc code, const std::string& text) : std::runtime_error(text), code_(code) {}
  [[nodiscard]] errc code() const noexcept { return code_; }

 private:
  errc code_;
};

// This call's arguments are wrong. Other ranks know nothing of it.
class argument_error : public error {
  using error::error;
};

// hvd::init() was not called, or the ranks disagree about an operation; the text says who wanted what.
class precondition_error : public error {
  using error::error;
};

// A time-out that the caller set ran out.
class timeout_error : public error {
  using error::error;
};

// A rank was lost or left. The job is over for this process: only shutdown() and a new init() help.
class shutdown_error : public error {
  using error::error;
};

// No more shared memory (HOROVOD_ARENA_BYTES).
class memory_error : public error {
  using error::error;
};

// This release cannot do it yet.
class unsupported_error : public error {
  using error::error;
};

namespace detail {

[[noreturn]] inline void raise(int status, const std::string& text) {
  const auto code = static_cast<errc>(status);
  switch (code) {
    case errc::shut_down:
      throw shutdown_error(code, text);
    case errc::invalid_argument:
      throw argument_error(code, text);
    case errc::deadline_exceeded:
      throw timeout_error(code, text);
    case errc::resource_exhausted:
      throw memory_error(code, text);
    case errc::failed_precondition:
      throw precondition_error(code, text);
    case errc::unimplemented:
      throw unsupported_error(code, text);
    default:
      throw error(code, text);
  }
}

// Throws what a call on this thread has just returned.
inline void check(int status) {
  if (status != HVD_OK) raise(status, hvd_last_error());
}

}  // namespace detail
}  // namespace hvd
