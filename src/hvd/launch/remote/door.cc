// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/remote/door.h"

#include <sys/epoll.h>

#include "hvd/net/socket.h"
#include "hvd/net/strangers.h"

namespace hvd::launch {

Result<std::unique_ptr<Door>> Door::Open(const std::vector<net::Address>& addresses, loop::Loop* loop,
                                         OnGuest on_guest) {
  std::unique_ptr<Door> door(new Door(loop, std::move(on_guest)));
  Error last{Code::kInvalidArgument, "no address to listen at"};
  for (const net::Address& address : addresses) {
    auto listener = net::Listen(address);
    if (!listener) {
      last = std::move(listener).error();
      continue;
    }
    HVD_ASSIGN_OR_RETURN(const net::Address bound, net::LocalAddress(listener->get()));
    const int fd = listener->get();
    HVD_RETURN_IF_ERROR(loop->Watch(fd, EPOLLIN, [self = door.get(), fd](uint32_t) { self->Accept(fd); }));
    door->listeners_.push_back(std::move(*listener));
    door->addresses_.push_back(bound.ToString());
  }
  if (door->listeners_.empty()) return Fail(std::move(last));
  return door;
}

void Door::Close() {
  for (const net::Fd& listener : listeners_) loop_->Unwatch(listener.get());
  listeners_.clear();
  open_.reset();
}

void Door::Accept(int listener) {
  for (int i = 0; i < net::Strangers::kAcceptsPerTurn && open_ != nullptr; ++i) {
    auto guest = net::Accept(listener);
    if (!guest) {
      // Out of descriptors: it stays readable, so watching it would burn a core.
      (void)loop_->Rearm(listener, 0);
      loop_->At(loop_->Now() + net::Strangers::kAcceptPause, [this, listener, open = std::weak_ptr<int>(open_)] {
        if (!open.expired()) (void)loop_->Rearm(listener, EPOLLIN);
      });
      return;
    }
    if (!*guest) return;
    on_guest_(std::move(**guest));
  }
}

}  // namespace hvd::launch
