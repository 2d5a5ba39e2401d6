// SPDX-License-Identifier: Apache-2.0
#pragma once
// The job token: 256 random bits that every process of one job knows and nobody else. Keys are derived from it
// (crypto.h), it never travels. Deliberately without a formatter or stream operator: it must not reach a log.
//
// Thread safety: immutable after construction.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/net/bytes.h"
#include "hvd/net/crypto.h"

namespace hvd::net {

class Token {
 public:
  static constexpr size_t kBytes = 32;

  static Result<Token> Generate();
  // 64 hexadecimal digits. The error does not repeat the text.
  static Result<Token> FromHex(std::string_view hex);
  // A regular file of this user with no permission for anybody else, holding 64 hexadecimal digits and at most white
  // space after them.
  static Result<Token> Load(const std::string& path);

  // Creates the file with mode 0600; kAlreadyExists if there is one.
  Status Save(const std::string& path) const;

  Bytes bytes() const { return secret_.bytes; }
  // Takes the same time wherever they differ.
  friend bool operator==(const Token& a, const Token& b) { return ConstantTimeEqual(a.bytes(), b.bytes()); }

 private:
  Token() = default;
  Key secret_;
};

}  // namespace hvd::net
