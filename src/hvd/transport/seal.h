// SPDX-License-Identifier: Apache-2.0
#pragma once
// Authenticates what steers a connection: its control messages, and why it ends. Tensor data goes without.
//
// Each direction has a key of its own and counts its frames, so that nobody on the path between two hosts can change,
// repeat, drop or insert one without being noticed.
//
// Thread safety: one thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "hvd/base/result.h"
#include "hvd/net/gmac.h"
#include "hvd/transport/frame.h"

namespace hvd::transport {

class Seal {
 public:
  // `session` is known to both ends of this connection alone. `connects`: this end has connected.
  static Result<std::unique_ptr<Seal>> Create(const net::Key& session, bool connects);

  // The code of the next frame that is sent.
  Result<net::Gmac::Tag> Close(FrameType type, std::span<const std::byte> payload);
  // Returns the payload of the next frame that came, without its code. kPermissionDenied if somebody has changed it.
  Result<std::span<const std::byte>> Open(FrameType type, std::span<const std::byte> sealed);

 private:
  Seal(net::Gmac sends, net::Gmac takes) : sends_(std::move(sends)), takes_(std::move(takes)) {}

  net::Gmac sends_, takes_;
  uint64_t sent_ = 0, taken_ = 0;
};

}  // namespace hvd::transport
