// SPDX-License-Identifier: Apache-2.0
// What an operation needs of the members' marks.
#include <optional>

#include "hvd/collective/window/marks.h"
#include "hvd/comm/builtin/window_communicator.h"
#include "hvd/comm/exchange_layout.h"

namespace hvd::comm::builtin {

using collective::window::PositionView;

int WindowCommunicator::FirstUnusable(const PositionView& view, const Work& work) const {
  const size_t all = work.payload.bytes();
  std::optional<ExchangeLayout> traffic;
  if (work.op == OpKind::kAllgather || work.op == OpKind::kAlltoall) traffic.emplace(work, stream_.me());
  for (int m = 0; m < stream_.members(); ++m) {
    // This rank believes its own mark, too: somebody else may have written there.
    if (!view.header(m).IsIntact()) return m;
    if (m == stream_.me()) continue;
    collective::window::Needed needed;
    if (work.op == OpKind::kAllreduce) {
      needed = {.in = all, .out = all};
    } else if (traffic) {
      needed.in = traffic->Incoming(m).end;
    } else if (work.op != OpKind::kBroadcast || m == work.root) {
      needed.in = all;
    }
    if (!collective::window::IsUsable(view, m, needed)) return m;
  }
  return -1;
}

}  // namespace hvd::comm::builtin
