// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/position_view.h"

namespace hvd::collective::window {
namespace {

// The memory of `member` that holds chunk `chunk`, given where its direct data begins. The mark was found usable, see
// marks.h.
std::byte* Locate(const PositionView& view, int member, size_t chunk, uint64_t direct_offset) {
  const Header& header = view.header(member);
  switch (header.location) {
    case DataLocation::kTiny:
      return const_cast<std::byte*>(header.tiny);
    case DataLocation::kInline:
      return view.stream->payload(member, view.position);
    case DataLocation::kDirect:
      return view.window->PeerArena(view.locals[member], direct_offset, 0) + chunk * view.staging.chunk_bytes;
    case DataLocation::kCopied:
      return view.window->PeerArena(view.locals[member], header.out_offset, 0) + chunk * view.staging.chunk_bytes;
    case DataLocation::kStaged:
      return view.window->PeerArena(view.locals[member], header.in_offset, 0) +
             (chunk % view.staging.depth) * view.staging.chunk_bytes;
    case DataLocation::kNothing:
      break;
  }
  return nullptr;
}

}  // namespace

bool IsDirect(const PositionView& view) {
  for (int m = 0; m < view.members(); ++m) {
    if (view.header(m).location != DataLocation::kDirect) return false;
  }
  return true;
}

bool IsCma(const PositionView& view) {
  bool cma = false;
  for (int m = 0; m < view.members(); ++m) {
    const Header& header = view.header(m);
    const bool staged = header.location == DataLocation::kStaged;
    if (header.address == 0 ||
        (!staged && header.location != DataLocation::kNothing && header.location != DataLocation::kDirect)) {
      return false;
    }
    cma |= staged;
  }
  return cma;
}

std::byte* PositionView::Source(int member, size_t chunk) const {
  return Locate(*this, member, chunk, header(member).in_offset);
}

std::byte* PositionView::Target(int member, size_t chunk) const {
  return Locate(*this, member, chunk, header(member).out_offset);
}

}  // namespace hvd::collective::window
