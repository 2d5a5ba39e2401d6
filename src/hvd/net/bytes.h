// SPDX-License-Identifier: Apache-2.0
#pragma once
// Byte ranges and a bounds-checked little-endian reader and writer for what travels on a wire.

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace hvd::net {

using Bytes = std::span<const uint8_t>;
using MutableBytes = std::span<uint8_t>;

inline Bytes AsBytes(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }
inline std::string_view AsText(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Appends to a string.
class ByteWriter {
 public:
  explicit ByteWriter(std::string* out) : out_(out) {}

  template <typename Integer>
  void Put(Integer value) {
    const auto bits = static_cast<uint64_t>(value);
    for (size_t i = 0; i < sizeof(Integer); ++i) out_->push_back(static_cast<char>(bits >> (8 * i)));
  }
  void PutBytes(std::string_view bytes) { out_->append(bytes); }

 private:
  std::string* out_;
};

// Reads from a range. The first read past its end makes the reader bad for good; bad reads give 0 and empty ranges, so
// a decoder may check once, at its end.
class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) : rest_(bytes) {}

  template <typename Integer>
  Integer Get() {
    uint64_t bits = 0;
    const Bytes raw = GetBytes(sizeof(Integer));
    for (size_t i = 0; i < raw.size(); ++i) bits |= static_cast<uint64_t>(raw[i]) << (8 * i);
    return static_cast<Integer>(bits);
  }
  Bytes GetBytes(size_t count) {
    if (bad_ || count > rest_.size()) {
      bad_ = true;
      return {};
    }
    const Bytes result = rest_.first(count);
    rest_ = rest_.subspan(count);
    return result;
  }
  size_t left() const { return bad_ ? 0 : rest_.size(); }
  // Everything was there, and nothing is left over.
  bool Complete() const { return !bad_ && rest_.empty(); }
  bool bad() const { return bad_; }

 private:
  Bytes rest_;
  bool bad_ = false;
};

}  // namespace hvd::net
