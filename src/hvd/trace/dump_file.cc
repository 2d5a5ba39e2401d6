// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/dump_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace hvd::trace {

DumpFile::DumpFile(std::string folder, const std::string& path)
    : folder_(std::move(folder)), path_(path), unfinished_(path + "." + std::string(kRandomDigits, '0') + ".part") {}

int DumpFile::Begin(unsigned mode) noexcept {
  if (!folder_.empty()) ::mkdir(folder_.c_str(), 0777);  // If that fails, so does open.
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  // Early at boot there are no random bytes; then the first name is as good as any.
  for (uint32_t attempt = 0; attempt < 8; ++attempt) {
    uint32_t random = attempt;
    [[maybe_unused]] const ssize_t got = ::getrandom(&random, sizeof random, GRND_NONBLOCK);
    for (size_t i = 0; i < kRandomDigits; ++i) {
      unfinished_[path_.size() + 1 + i] = "0123456789abcdef"[random >> (4 * i) & 15];
    }
    const int fd = ::open(unfinished_.c_str(), kFlags, mode);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

bool DumpFile::Finish(int fd, bool good) noexcept {
  const int before = errno;
  const bool closed = ::close(fd) == 0;
  if (!good) errno = before;
  return Publish(good && closed);
}

bool DumpFile::Publish(bool good) noexcept {
  if (good && ::rename(unfinished_.c_str(), path_.c_str()) == 0) return true;
  const int error = errno;
  ::unlink(unfinished_.c_str());
  errno = error;
  return false;
}

}  // namespace hvd::trace
