// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/meeting.h"

namespace hvd::collective::window {
namespace {

// The memory of `member` that holds chunk `chunk`, given where its direct data begins.
std::byte* Locate(const Meeting& meeting, int member, size_t chunk, uint64_t direct_offset) {
  const Header& header = meeting.header(member);
  switch (header.place) {
    case Place::kTiny:
      return const_cast<std::byte*>(header.tiny);
    case Place::kInline:
      return meeting.stream->payload(member, meeting.position);
    case Place::kDirect:
      return meeting.window->PeerArena(meeting.locals[member], direct_offset) + chunk * meeting.staging.chunk_bytes;
    case Place::kCopied:
      return meeting.window->PeerArena(meeting.locals[member], header.out_offset) + chunk * meeting.staging.chunk_bytes;
    case Place::kStaged:
      return meeting.window->PeerArena(meeting.locals[member], header.in_offset) +
             (chunk % meeting.staging.depth) * meeting.staging.chunk_bytes;
    case Place::kNothing:
      break;
  }
  return nullptr;
}

}  // namespace

bool IsDirect(const Meeting& meeting) {
  for (int m = 0; m < meeting.members(); ++m) {
    if (meeting.header(m).place != Place::kDirect) return false;
  }
  return true;
}

bool IsFetched(const Meeting& meeting) {
  bool fetched = false;
  for (int m = 0; m < meeting.members(); ++m) {
    const Header& header = meeting.header(m);
    const bool staged = header.place == Place::kStaged;
    if (header.address == 0 || (!staged && header.place != Place::kNothing && header.place != Place::kDirect)) {
      return false;
    }
    fetched |= staged;
  }
  return fetched;
}

std::byte* Meeting::Source(int member, size_t chunk) const {
  return Locate(*this, member, chunk, header(member).in_offset);
}

std::byte* Meeting::Target(int member, size_t chunk) const {
  return Locate(*this, member, chunk, header(member).out_offset);
}

}  // namespace hvd::collective::window
