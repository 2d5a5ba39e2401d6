// SPDX-License-Identifier: Apache-2.0
// What an operation needs of the members' marks, and whether they are damaged.
#include <optional>

#include "hvd/collective/window/marks.h"
#include "hvd/comm/builtin/window_communicator.h"
#include "hvd/comm/exchange_layout.h"

namespace hvd::comm::builtin {

using collective::window::Header;
using collective::window::MarkStream;
using collective::window::PositionView;

int WindowCommunicator::ReadMarks(uint64_t position, const Work& work) {
  const PositionView view = ViewAt(position);
  const size_t all = work.payload.bytes();
  std::optional<ExchangeLayout> traffic;
  if (work.op == OpKind::kAllgather || work.op == OpKind::kAlltoall) traffic.emplace(work, stream_.me());
  for (int m = 0; m < stream_.members(); ++m) {
    collective::window::Needed needed;
    if (work.op == OpKind::kAllreduce) {
      needed = {.in = all, .out = all};
    } else if (traffic) {
      needed.in = traffic->Incoming(m).end;
    } else if (work.op != OpKind::kBroadcast || m == work.root) {
      needed.in = all;
    }
    // This rank believes its own mark no more than the others': another rank may have written there.
    if (!collective::window::ReadPlace(view, m, needed, &PlacesAt(position)[m])) return m;
  }
  return -1;
}

int WindowCommunicator::Damaged(uint64_t epoch, uint64_t position) const {
  const uint64_t mark = MarkStream::Mark(epoch, position);
  for (int m = 0; m < stream_.members(); ++m) {
    const Header& header = stream_.header(m, position);
    if (header.mark.load(std::memory_order_acquire) == mark && !header.IsIntact()) return m;
    // A position is finished with the marks of all.
    if (stream_.released(m).load(std::memory_order_acquire) > published_) return m;
  }
  return collective::window::FirstDamaged(stream_, position);
}

}  // namespace hvd::comm::builtin
