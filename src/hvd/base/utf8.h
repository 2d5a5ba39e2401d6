// SPDX-License-Identifier: Apache-2.0
#pragma once
// Texts that travel have a longest length.

#include <string_view>

namespace hvd {

// At most `most` bytes of the text, cut at a character's start, so that UTF-8 stays UTF-8.
inline std::string_view Cut(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace hvd
