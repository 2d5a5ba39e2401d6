// SPDX-License-Identifier: Apache-2.0
#pragma once
// Errors are values. Every fallible function returns Result<T> (or Status for "nothing or an error"); nothing in the
// library throws. Codes have the numbers of absl::StatusCode (and therefore of TensorFlow and XLA), so that they
// translate once.

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace hvd {

enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,  // a lost peer, a revoked generation: what elastic training recovers from
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,  // ranks disagree, or hvd is not initialised
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
};

struct Error {
  Code code = Code::kInternal;
  std::string message;
  int rank = -1;  // the rank at fault, where one is known
};

template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

using Status = Result<void>;

// Makes an Error in the form a Result can be built from: return Fail(Code::kNotFound, "no key {}", key);
template <typename... Args>
tl::unexpected<Error> Fail(Code code, fmt::format_string<Args...> text, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(text, std::forward<Args>(args)...)});
}

inline tl::unexpected<Error> Fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace hvd

#define HVD_CONCAT_(a, b) a##b
#define HVD_CONCAT(a, b) HVD_CONCAT_(a, b)

#define HVD_RETURN_IF_ERROR(expr)                        \
  do {                                                   \
    if (auto hvd_status = (expr); !hvd_status) {         \
      return ::hvd::Fail(std::move(hvd_status).error()); \
    }                                                    \
  } while (false)

#define HVD_ASSIGN_OR_RETURN(lhs, expr) HVD_ASSIGN_OR_RETURN_(HVD_CONCAT(hvd_result_, __LINE__), lhs, expr)
#define HVD_ASSIGN_OR_RETURN_(tmp, lhs, expr)           \
  auto tmp = (expr);                                    \
  if (!tmp) return ::hvd::Fail(std::move(tmp).error()); \
  lhs = std::move(*tmp)
