// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/planted_link.h"

#include <sys/stat.h>
#include <unistd.h>

namespace hvd {

Status CheckNoPlantedLink(const std::string& path) {
  struct stat link {};
  if (::lstat(path.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) return {};
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat around {};
  if (::stat(folder.c_str(), &around) != 0 || (around.st_mode & S_IWOTH) == 0) return {};
  if (link.st_uid == ::geteuid() || link.st_uid == around.st_uid) return {};
  return Fail(
      Code::kPermissionDenied,
      "{} is a link of another user (uid {}) in a folder that everybody can write: remove it, or write elsewhere", path,
      link.st_uid);
}

}  // namespace hvd
