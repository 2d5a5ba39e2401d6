// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/one_shot.h"

#include <array>

namespace hvd::collective::window {

bool AllBesideMarks(const Meeting& meeting) {
  for (int m = 0; m < meeting.members(); ++m) {
    if (!IsBesideMark(meeting.header(m).place)) return false;
  }
  return true;
}

void ReduceOneShot(const Meeting& meeting, ReduceOp op, DType type, kernel::Scale scale, pattern::Range range,
                   std::byte* to) {
  if (to == nullptr || range.size() == 0) return;
  constexpr int kOnStack = 64;
  std::array<const void*, kOnStack> few;
  std::vector<const void*> many;
  const void** sources = few.data();
  if (meeting.members() > kOnStack) {
    many.resize(meeting.members());
    sources = many.data();
  }
  for (int m = 0; m < meeting.members(); ++m) sources[m] = meeting.Source(m, 0) + range.begin;
  void* target = to;
  kernel::Reduce(op, type, {sources, static_cast<size_t>(meeting.members())}, {&target, 1}, range.size() / SizeOf(type),
                 scale);
}

void CopyOneShot(const Meeting& meeting, int source, pattern::Range range, std::byte* to) {
  if (to != nullptr && range.size() > 0) kernel::Copy(to, meeting.Source(source, 0) + range.begin, range.size());
}

}  // namespace hvd::collective::window
