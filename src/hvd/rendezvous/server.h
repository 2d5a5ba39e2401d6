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
  // Waits until `expected_goodbyes` clients have left (said goodbye, or lost their connection, as a client that died
  // does) since the server began. kDeadlineExceeded says how many had.
  virtual Status Drain(int expected_goodbyes, Duration timeout) = 0;
};

}  // namespace hvd::rendezvous
