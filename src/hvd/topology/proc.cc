// SPDX-License-Identifier: Apache-2.0
#include "hvd/topology/proc.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hvd::topology {

std::optional<std::string> ReadSmallFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text(64 << 10, '\0');
  size_t size = 0;
  bool good = true;
  while (size < text.size()) {
    const ssize_t count = ::read(fd, text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    good = count >= 0;
    if (count <= 0) break;
    size += static_cast<size_t>(count);
  }
  ::close(fd);
  if (!good) return std::nullopt;
  text.resize(size);
  return text;
}

}  // namespace hvd::topology
