// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/complaint.h"

#include <unistd.h>

#include "hvd/launch/exit_codes.h"

namespace hvd::launch {

int Complain(const Error& error, int code) {
  const std::string text = fmt::format("horovodrun: {}\n", error.message);
  [[maybe_unused]] const ssize_t written = ::write(2, text.data(), text.size());
  return code;
}

int CodeFor(const Error& error) {
  if (error.code == Code::kNotFound) return kNoCommand;
  if (error.code == Code::kPermissionDenied) return kCannotRun;
  return kUsage;
}

}  // namespace hvd::launch
