// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/position_view.h"

#include <algorithm>

namespace hvd::collective::window {

bool IsDirect(const PositionView& view) {
  for (int m = 0; m < view.members(); ++m) {
    if (view.place(m).location != DataLocation::kDirect) return false;
  }
  return true;
}

bool IsCma(const PositionView& view) {
  bool cma = false;
  for (int m = 0; m < view.members(); ++m) {
    const Place& place = view.place(m);
    const bool staged = place.location == DataLocation::kStaged;
    if (place.address == 0 ||
        (!staged && place.location != DataLocation::kNothing && place.location != DataLocation::kDirect)) {
      return false;
    }
    cma |= staged;
  }
  return cma;
}

int PositionView::FirstDamagedCounter() const {
  const uint64_t most = MarkStream::Count(position, most_chunks);
  for (int m = 0; m < members(); ++m) {
    const Counters& theirs = counters(m);
    if (std::max(theirs.in.load(std::memory_order_relaxed), theirs.out.load(std::memory_order_relaxed)) > most)
      return m;
  }
  return -1;
}

}  // namespace hvd::collective::window
