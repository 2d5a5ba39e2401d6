// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the two halves of a framed pair keep of user operations, and how they hand completions out.

#include <cstddef>
#include <deque>
#include <memory>

#include "hvd/base/result.h"
#include "hvd/transport/framed_pair_cursor.h"
#include "hvd/transport/pair.h"

namespace hvd::transport {

struct RecvOp {
  IovecCursor into;
  size_t total = 0;
  PartialArrival on_bytes;
  Completion done;
  size_t received() const { return total - into.left(); }
};

// User code that is due, in order. First `progress` (if any) hears that `bytes` have arrived, then `done` (if any)
// runs.
struct DueCall {
  std::shared_ptr<RecvOp> progress;
  size_t bytes = 0;
  Completion done;
  Status status;
};
using DueCalls = std::deque<DueCall>;

inline DueCall DueDone(Completion done, Status status) {
  return DueCall{.progress = nullptr, .bytes = 0, .done = std::move(done), .status = std::move(status)};
}

}  // namespace hvd::transport
