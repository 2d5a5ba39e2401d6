// SPDX-License-Identifier: Apache-2.0
#pragma once
// What there is to do for an engine, as the threads that drive it see it.

#include "hvd/base/clock.h"

namespace hvd::engine {

class EngineWork {
 public:
  virtual ~EngineWork() = default;
  // Does what can be done now, and does not wait. Returns whether anything moved. Call with the progress token.
  virtual bool Progress() = 0;
  // Whether there is a reason to go on: an operation in flight, or a stall that is being looked into. Any thread.
  virtual bool unfinished() const = 0;
  // Whether a thread without the token left an operation for the one that has it. Any thread.
  virtual bool has_submissions() const = 0;
  // When to call Progress again if nothing happens until then. Call with the progress token.
  virtual Time NextEvent(Time now) = 0;
};

}  // namespace hvd::engine
