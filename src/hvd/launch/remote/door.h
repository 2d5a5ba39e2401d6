// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where agents come in: listens at a few addresses of this machine, never at all of them, and hands out connections
// that are yet to prove themselves.
//
// Thread safety: none; on the job's loop.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/loop/loop.h"
#include "hvd/net/address.h"
#include "hvd/net/fd.h"

namespace hvd::launch {

class Door {
 public:
  using OnGuest = std::function<void(net::Fd)>;
  // Port 0: any free one. An error if none of the addresses can be used.
  static Result<std::unique_ptr<Door>> Open(const std::vector<net::Address>& addresses, loop::Loop* loop,
                                            OnGuest on_guest);
  ~Door() { Close(); }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // With the ports that were chosen.
  const std::vector<std::string>& addresses() const { return addresses_; }
  void Close();

 private:
  Door(loop::Loop* loop, OnGuest on_guest) : loop_(loop), on_guest_(std::move(on_guest)) {}
  void Accept(int listener);

  loop::Loop* const loop_;
  const OnGuest on_guest_;
  std::vector<net::Fd> listeners_;
  std::vector<std::string> addresses_;
  std::shared_ptr<int> open_ = std::make_shared<int>();  // for what is deferred
};

}  // namespace hvd::launch
