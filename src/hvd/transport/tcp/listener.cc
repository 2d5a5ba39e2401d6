// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/tcp/listener.h"

#include <utility>

#include "hvd/net/socket.h"

namespace hvd::transport::tcp {

Result<Listener> Listener::Create(const net::Address& address) {
  HVD_ASSIGN_OR_RETURN(net::Fd fd, net::Listen(address));
  HVD_ASSIGN_OR_RETURN(const net::Address bound, net::LocalAddress(fd.get()));
  return Listener(std::move(fd), bound);
}

}  // namespace hvd::transport::tcp
