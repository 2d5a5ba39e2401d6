// SPDX-License-Identifier: Apache-2.0
#pragma once
// What tells one machine's clock from another's.

#include <fcntl.h>
#include <unistd.h>

#include <string>

namespace hvd::trace {

// Equal where the monotonic clocks are the same clock; "" if the kernel does not say.
inline std::string BootId() {
  char text[36];
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t size = ::read(fd, text, sizeof(text));
  ::close(fd);
  return size == sizeof(text) ? std::string(text, sizeof(text)) : std::string();
}

}  // namespace hvd::trace
