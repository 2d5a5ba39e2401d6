// SPDX-License-Identifier: Apache-2.0
#pragma once
// A file that appears whole or not at all, in a folder that other users may be able to write.
//
// It is written under a random name that must not exist yet, and then renamed. So no link and no FIFO that somebody has
// planted is followed or waited for, and two writers do not disturb each other.
//
// Thread safety: none. Begin and Finish are safe in a signal handler.

#include <string>

namespace hvd::trace {

class DumpFile {
 public:
  // `path` lies in `folder`, which Begin makes if it is missing. No folder: it exists.
  DumpFile(std::string folder, const std::string& path);

  // Returns a descriptor to read and write, or -1 with errno.
  int Begin(unsigned mode = 0644) noexcept;
  // Closes the descriptor, and gives the file its name if `good`. False, with errno: there is no new file.
  bool Finish(int fd, bool good) noexcept;
  // The same without closing.
  bool Publish(bool good) noexcept;

 private:
  static constexpr size_t kRandomDigits = 8;

  std::string folder_;
  std::string path_;
  std::string unfinished_;  // PATH.RANDOM.part
};

}  // namespace hvd::trace
