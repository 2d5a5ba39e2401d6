// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text for reports. Nothing here but Escaped and a LineWriter into a string allocates or locks, so signal handlers may
// use the rest.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hvd::trace {

// Copies a name. One that does not fit keeps both ends ("begin~end"): names of one model differ in their tails as often
// as in their heads. Returns the length.
size_t CutName(std::string_view name, char* out, size_t capacity);

// Most bytes that EscapeJson makes of one.
inline constexpr size_t kMaxEscape = 6;

// Writes `text` as the inside of a JSON string to `out`, which has room for kMaxEscape times its size. Bytes that are
// no UTF-8 become U+FFFD: a strict reader must accept whatever a user calls a tensor. Returns the length.
size_t EscapeJson(std::string_view text, char* out);
std::string Escaped(std::string_view text);

// A file that grows by write(2) alone, or a string.
//
// Thread safety: none. The buffer is the caller's.
class LineWriter {
 public:
  LineWriter(int fd, char* buffer, size_t capacity) : fd_(fd), buffer_(buffer), capacity_(capacity) {}
  // Appends to a string, which allocates: not for signal handlers.
  LineWriter(std::string* text, char* buffer, size_t capacity) : text_(text), buffer_(buffer), capacity_(capacity) {}

  LineWriter& Text(std::string_view text);
  LineWriter& Number(int64_t value);
  // In quotes and escaped.
  LineWriter& String(std::string_view text);
  // `"key":`, after a comma unless it opens the object.
  LineWriter& Key(std::string_view key);
  LineWriter& Open();
  LineWriter& Close();
  // False if anything could not be written.
  bool Flush();

 private:
  const int fd_ = -1;
  std::string* const text_ = nullptr;
  char* const buffer_;
  const size_t capacity_;
  size_t used_ = 0;
  bool first_ = true;
  bool good_ = true;
};

}  // namespace hvd::trace
