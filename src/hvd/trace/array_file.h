// SPDX-License-Identifier: Apache-2.0
#pragma once
// A JSON array in a file that a strict reader accepts at every moment, also after the writer was killed.
//
// The file ends in "]" behind a field of blanks; elements are written into the blanks. The kernel copies what lies in
// one page without a look at signals, so an element that stays within its page is there as a whole or not at all, and
// the "]" is never touched. When the blanks are used up, a copy with twice the size takes the file's place by rename.
// The blocks of the blanks exist already, so a full disk shows when the file grows, not in the middle of an element.
//
// Cost: blanks of at most the size of what is written, and each byte copied about twice; Close cuts the blanks off.
//
// Thread safety: none.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/trace/dump_file.h"

namespace hvd::trace {

class ArrayFile {
 public:
  // Most bytes of what is appended at once.
  static constexpr size_t kMaxUnit = 4096 - 8;

  // Replaces what is at `path`. `head` is the first element or elements. The file never has more than `limit` bytes,
  // which is at least 64 KiB; 0: no limit.
  static Result<std::unique_ptr<ArrayFile>> Create(std::string path, std::string_view head, uint64_t limit);
  ~ArrayFile();
  ArrayFile(const ArrayFile&) = delete;
  ArrayFile& operator=(const ArrayFile&) = delete;

  // Adds elements that belong together: `unit` has commas between, not around them. They are in the file after Flush.
  // kResourceExhausted: the limit is reached, and nothing was added.
  Status Append(std::string_view unit);
  Status Flush();
  // Flushes and gives back what is blank. What fails here leaves the file valid.
  Status Close();

 private:
  ArrayFile(std::string path, uint64_t limit);

  // Makes a file of `size` bytes with what is written so far, and puts it at `path_`.
  Status Replace(uint64_t size, std::string_view head);
  Status Grow();

  const std::string path_;
  DumpFile unfinished_;
  unsigned mode_ = 0644;  // as the file that is replaced has it
  const uint64_t limit_;
  int fd_ = -1;
  uint64_t size_ = 0;  // of the file, with the blanks
  uint64_t at_ = 0;    // where the next unit goes; `pending_` bytes before it wait for Flush
  size_t pending_ = 0;
  std::array<char, 4096> page_;
};

}  // namespace hvd::trace
