// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/planted_link.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hvd {

Status CheckNoPlantedLink(const std::string& path) {
  struct stat link {};
  if (::lstat(path.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) return {};
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat around {};
  if (::stat(folder.c_str(), &around) != 0 || (around.st_mode & (S_IWOTH | S_IWGRP)) == 0) return {};
  if (link.st_uid == ::geteuid() || link.st_uid == around.st_uid) return {};
  return Fail(Code::kPermissionDenied,
              "{} is a link of another user (uid {}) in a folder that others can write: remove it, or write elsewhere",
              path, link.st_uid);
}

Result<int> OpenToWrite(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK;
  int fd = ::open(path.c_str(), kFlags | O_NOFOLLOW, 0666);
  if (fd < 0 && errno == ELOOP) {
    // Where others cannot replace it, what is opened is what was checked.
    HVD_RETURN_IF_ERROR(CheckNoPlantedLink(path));
    fd = ::open(path.c_str(), kFlags, 0666);
  }
  const auto refuse = [&](const char* why) {
    if (fd >= 0) ::close(fd);
    return Fail(Code::kInvalidArgument, "{}: cannot be written: {}", path, why);
  };
  if (fd < 0) return refuse(errno == ENXIO ? "it is a pipe that nobody reads" : std::strerror(errno));
  struct stat file {};
  if (::fstat(fd, &file) != 0) return refuse(std::strerror(errno));
  if (S_ISFIFO(file.st_mode) && file.st_uid != ::geteuid()) return refuse("it is a pipe of another user");
  if (S_ISREG(file.st_mode) && ::ftruncate(fd, 0) != 0) return refuse(std::strerror(errno));
  ::fcntl(fd, F_SETFL, 0);
  return fd;
}

}  // namespace hvd
