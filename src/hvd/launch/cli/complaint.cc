// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/cli/complaint.h"

#include <unistd.h>

#include <cerrno>

#include "hvd/launch/cli/exit_codes.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

int Complain(const Error& error, int code) {
  (void)WriteAll(2, fmt::format("horovodrun: {}\n", error.message));
  return code;
}

void Note(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  (void)WriteAll(2, fmt::format("horovodrun: note: {}\n", text));
}

int Answer(std::string_view text) {
  if (WriteAll(1, text)) return 0;
  return Complain({Code::kUnknown, fmt::format("stdout: {}", net::ErrnoText(errno))}, kOwnFailure);
}

int CodeFor(const Error& error) {
  if (error.code == Code::kNotFound) return kNoCommand;
  if (error.code == Code::kPermissionDenied) return kCannotRun;
  return kUsage;
}

}  // namespace hvd::launch
