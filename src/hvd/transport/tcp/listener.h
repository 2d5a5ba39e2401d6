// SPDX-License-Identifier: Apache-2.0
#pragma once
// The socket at which a rank waits for the data connections of higher ranks. Bound to one given address, never to all.
//
// Thread safety: one thread at a time.

#include "hvd/base/result.h"
#include "hvd/net/address.h"
#include "hvd/net/fd.h"

namespace hvd::transport::tcp {

class Listener {
 public:
  // Port 0 takes a free one; address() tells which.
  static Result<Listener> Create(const net::Address& address);

  const net::Address& address() const { return address_; }
  int fd() const { return fd_.get(); }

 private:
  Listener(net::Fd fd, const net::Address& address) : fd_(std::move(fd)), address_(address) {}

  net::Fd fd_;
  net::Address address_;
};

}  // namespace hvd::transport::tcp
