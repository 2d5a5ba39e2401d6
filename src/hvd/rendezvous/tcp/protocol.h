// SPDX-License-Identifier: Apache-2.0
#pragma once
// What travels between store client and server. Both sides first send the preface; then the client sends requests, one
// at a time, and the server answers each but goodbye. A frame is a 32-bit length and a body; integers are
// little-endian.
//
//   set      1 | key | value            key    16-bit length, bytes
//   wait     2 | timeout us | count | keys   value  32-bit length, bytes
//   add      3 | key | delta
//   delete   4 | key
//   goodbye  5
//   response code | kind | message (error), nothing (0), number (1) or count and values (2)
//
// Lengths are checked against the limits below before anything is allocated for them; a body must be used up exactly.
// Decoding is pure and never reads outside its input: it is fuzzed (tests/fuzz/store_protocol_fuzz.cc).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/net/bytes.h"
#include "hvd/rendezvous/store.h"

namespace hvd::rendezvous::tcp {

inline constexpr std::string_view kPreface = "HVDSTOR1";
inline constexpr size_t kLengthBytes = 4;
inline constexpr size_t kMaxKeysPerWait = 4096;
inline constexpr size_t kMaxMessageBytes = 16 << 10;
// The largest wait and the largest set; what a client may make the server hold.
inline constexpr size_t kMaxRequestBytes = 64 + kMaxKeysPerWait * (2 + kMaxKeyBytes);
static_assert(kMaxRequestBytes >= 64 + kMaxKeyBytes + kMaxValueBytes);
inline constexpr size_t kMaxResponseBytes = 64 << 20;

enum class Op : uint8_t { kSet = 1, kWait = 2, kAdd = 3, kDelete = 4, kGoodbye = 5 };

struct Request {
  Op op = Op::kGoodbye;
  std::string key{};
  std::string value{};
  int64_t delta = 0;
  uint64_t timeout_us = 0;
  std::vector<std::string> keys{};
  bool operator==(const Request&) const = default;
};

struct Response {
  enum class Kind : uint8_t { kNothing = 0, kNumber = 1, kValues = 2 };
  Code code = Code::kOk;
  std::string message{};
  Kind kind = Kind::kNothing;
  int64_t number = 0;
  std::vector<std::string> values{};
  bool operator==(const Response&) const = default;
};

// Whole frames, length included. Inputs must be within the limits.
std::string Encode(const Request& request);
std::string Encode(const Response& response);

// Bodies, without the length.
Result<Request> DecodeRequest(net::Bytes body);
Result<Response> DecodeResponse(net::Bytes body);

// The length of a body from the kLengthBytes before it; an error if it is 0 or above `limit`.
Result<size_t> DecodeLength(net::Bytes header, size_t limit);

// Cuts a stream of bytes into bodies. Its memory grows with what has arrived, not with what a length promises.
class FrameCutter {
 public:
  explicit FrameCutter(size_t limit) : limit_(limit) {}
  void Append(net::Bytes bytes);
  // The next whole body, valid until the next call; nothing if it has not all arrived.
  Result<std::optional<net::Bytes>> Next();
  size_t buffered() const { return buffer_.size() - start_; }

 private:
  size_t limit_;
  std::string buffer_;
  size_t start_ = 0;
};

}  // namespace hvd::rendezvous::tcp
