// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kinds of files by path. A path that cannot be looked up is neither a file nor a folder.

#include <sys/stat.h>

#include <string>

namespace hvd::launch {

inline bool IsFile(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

inline bool IsFolder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace hvd::launch
