// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/marks.h"

#include <algorithm>

namespace hvd::collective::window {

bool IsUsable(const PositionView& view, int member, const Needed& needed) {
  const Header& header = view.header(member);
  const auto has = [&](uint64_t offset, size_t bytes) {
    return view.window->PeerArena(view.locals[member], offset, bytes) != nullptr;
  };
  switch (header.location) {
    case DataLocation::kNothing:
    case DataLocation::kTiny:
    case DataLocation::kInline:
      return needed.in <= RoomBesideMark(header.location, view.stream->payload_bytes());
    case DataLocation::kDirect:
      return has(header.in_offset, needed.in) && has(header.out_offset, needed.out);
    case DataLocation::kStaged:
      return has(header.in_offset, view.staging.bytes());
    case DataLocation::kCopied:
      return has(header.out_offset, std::max(needed.in, needed.out));
  }
  return false;
}

int FirstDamaged(const MarkStream& stream, uint64_t position) {
  for (int m = 0; m < stream.members(); ++m) {
    const Header& header = stream.header(m, position);
    // In this order: a new echo is seen only where the old mark is gone, see WindowCommunicator::Publish.
    const uint64_t mark = header.mark.load(std::memory_order_acquire);
    const uint64_t echo = stream.counters(m, position).echo.load(std::memory_order_acquire);
    if (mark != 0 && mark != echo && header.mark.load(std::memory_order_acquire) == mark) return m;
  }
  return -1;
}

Error BadMark::error() const {
  return {Code::kInternal,
          fmt::format(
              "the rank with pid {} has put a mark into shared memory that is damaged, or points outside of its memory",
              pid_)};
}

}  // namespace hvd::collective::window
