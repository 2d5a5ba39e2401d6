// SPDX-License-Identifier: Apache-2.0
#pragma once
// The serving side of a Store that needs one.
//
// Thread safety: all functions may be called from any thread; the destructor after all others.
// Lifetime: the destructor stops serving at once. Call Drain before, where clients may still be at work.

#include <string>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"

namespace hvd::rendezvous {

class Server {
 public:
  virtual ~Server() = default;
  // What clients give to OpenStore: the address asked for, with the port that was chosen.
  virtual std::string address() const = 0;
  // Nobody new is let in any more.
  virtual void CloseDoor() = 0;
  // Waits until no client is connected: all have said goodbye, or ended. kDeadlineExceeded says how many have not.
  // Strangers do not count.
  virtual Status Drain(Duration timeout) = 0;
  // Why the last client was turned away that could not prove to be one of ours, or could not be accepted because this
  // process has no descriptor left; empty: none was. A hint for a rank that waits without success: the client may have
  // been a rank with another token, or a stranger.
  virtual std::string LastRefusal() const = 0;
};

}  // namespace hvd::rendezvous
