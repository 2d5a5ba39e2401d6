// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/one_shot.h"

#include <array>

namespace hvd::collective::window {

bool AllBesideMarks(const Meeting& meeting) {
  for (int m = 0; m < meeting.members(); ++m) {
    const Place place = meeting.header(m).place;
    if (place == Place::kDirect || place == Place::kStaged) return false;
  }
  return true;
}

void ReduceOneShot(const Meeting& meeting, ReduceOp op, DType type, kernel::Scale scale, const Payload& payload,
                   std::byte* scratch) {
  constexpr int kOnStack = 64;
  std::array<const void*, kOnStack> few;
  std::vector<const void*> many;
  const void** sources = few.data();
  if (meeting.members() > kOnStack) {
    many.resize(meeting.members());
    sources = many.data();
  }
  for (int m = 0; m < meeting.members(); ++m) sources[m] = meeting.Source(m, 0);

  const bool single = payload.pieces().size() == 1;
  void* target = single ? payload.pieces()[0].out : scratch;
  if (target == nullptr) return;
  kernel::Reduce(op, type, {sources, static_cast<size_t>(meeting.members())}, {&target, 1},
                 payload.bytes() / SizeOf(type), scale);
  if (!single) payload.Scatter(0, payload.bytes(), scratch);
}

void CopyOneShot(const Meeting& meeting, int source, size_t bytes, std::byte* to) {
  if (to != nullptr && bytes > 0) kernel::Copy(to, meeting.Source(source, 0), bytes);
}

}  // namespace hvd::collective::window
