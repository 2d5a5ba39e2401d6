// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/marks.h"

#include <algorithm>

namespace hvd::collective::window {

bool ReadPlace(const PositionView& view, int member, const Needed& needed, Place* place) {
  Header& shared = view.stream->header(member, view.position);
  const Header header(shared);
  if (!header.IsIntact()) return false;
  const auto mapped = [&](uint64_t offset, size_t bytes) {
    return view.window->PeerArena(view.locals[member], offset, bytes);
  };
  const bool fits = needed.in <= RoomBesideMark(header.location, view.stream->payload_bytes());
  switch (header.location) {
    case DataLocation::kNothing:
      *place = {.location = header.location, .address = header.address};
      return fits;
    case DataLocation::kTiny:
      *place = {.location = header.location, .source = shared.tiny, .target = shared.tiny};
      return fits;
    case DataLocation::kInline: {
      std::byte* const payload = view.stream->payload(member, view.position);
      *place = {.location = header.location, .source = payload, .target = payload};
      return fits;
    }
    case DataLocation::kDirect:
      *place = {header.location, mapped(header.in_offset, needed.in), mapped(header.out_offset, needed.out),
                header.address};
      break;
    case DataLocation::kStaged: {
      std::byte* const ring = mapped(header.in_offset, view.staging.bytes());
      *place = {header.location, ring, ring, header.address};
      break;
    }
    case DataLocation::kCopied: {
      std::byte* const result = mapped(header.out_offset, std::max(needed.in, needed.out));
      *place = {header.location, result, result, header.address};
      break;
    }
    default:
      return false;
  }
  return place->source != nullptr && place->target != nullptr;
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
