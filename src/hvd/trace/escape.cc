// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/escape.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace hvd::trace {
namespace {

// Bytes of the UTF-8 character that `text` begins with; 0 if it begins with none.
size_t CharacterLength(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if (lead == 0xe0 && at(1) < 0xa0) return 0;
  if (lead == 0xed && at(1) > 0x9f) return 0;
  if (lead == 0xf0 && at(1) < 0x90) return 0;
  if (lead == 0xf4 && at(1) > 0x8f) return 0;
  return length;
}

}  // namespace

size_t CutName(std::string_view name, char* out, size_t capacity) {
  if (name.size() <= capacity) {
    std::copy(name.begin(), name.end(), out);  // An empty name may have no address, which memcpy must not be given.
    return name.size();
  }
  const size_t head = (capacity - 1) / 2;
  const size_t tail = capacity - 1 - head;
  std::memcpy(out, name.data(), head);
  out[head] = '~';
  std::memcpy(out + head + 1, name.data() + name.size() - tail, tail);
  return capacity;
}

size_t EscapeJson(std::string_view text, char* out) {
  constexpr char kHex[] = "0123456789abcdef";
  char* at = out;
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    size_t length = CharacterLength(text);
    if (length == 0) {
      std::memcpy(at, "\\ufffd", 6);
      at += 6;
      length = 1;
    } else if (c == '"' || c == '\\') {
      *at++ = '\\';
      *at++ = static_cast<char>(c);
    } else if (c < 0x20 || c == 0x7f) {
      const char code[] = {'\\', 'u', '0', '0', kHex[c >> 4], kHex[c & 15]};
      std::memcpy(at, code, sizeof(code));
      at += sizeof(code);
    } else {
      std::memcpy(at, text.data(), length);
      at += length;
    }
    text.remove_prefix(length);
  }
  return static_cast<size_t>(at - out);
}

std::string Escaped(std::string_view text) {
  std::string out(text.size() * kMaxEscape, '\0');
  out.resize(EscapeJson(text, out.data()));
  return out;
}

LineWriter& LineWriter::Text(std::string_view text) {
  while (!text.empty() && good_) {
    if (used_ == capacity_ && !Flush()) break;
    const size_t part = std::min(text.size(), capacity_ - used_);
    std::memcpy(buffer_ + used_, text.data(), part);
    used_ += part;
    text.remove_prefix(part);
  }
  return *this;
}

LineWriter& LineWriter::Number(int64_t value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  return Text({digits, static_cast<size_t>(end - digits)});
}

LineWriter& LineWriter::String(std::string_view text) {
  constexpr size_t kPiece = 64;
  char escaped[kPiece * kMaxEscape];
  Text("\"");
  while (!text.empty()) {
    size_t piece = std::min(kPiece, text.size());
    // Not through the middle of a character: both halves would be no UTF-8.
    while (piece > kPiece - 3 && piece < text.size() && (static_cast<unsigned char>(text[piece]) & 0xc0) == 0x80) {
      --piece;
    }
    Text({escaped, EscapeJson(text.substr(0, piece), escaped)});
    text.remove_prefix(piece);
  }
  return Text("\"");
}

LineWriter& LineWriter::Key(std::string_view key) {
  if (!first_) Text(",");
  first_ = false;
  return Text("\"").Text(key).Text("\":");
}

LineWriter& LineWriter::Open() {
  first_ = true;
  return Text("{");
}

LineWriter& LineWriter::Close() {
  first_ = false;
  return Text("}");
}

bool LineWriter::Flush() {
  size_t done = 0;
  if (text_ != nullptr) {
    text_->append(buffer_, used_);
    done = used_;
  }
  while (done < used_ && good_) {
    const ssize_t written = ::write(fd_, buffer_ + done, used_ - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written == 0 || errno != EINTR) {
      good_ = false;
    }
  }
  used_ = 0;
  return good_;
}

}  // namespace hvd::trace
