// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/one_shot.h"

#include "hvd/collective/window/per_member.h"

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
  PerMember<const void*> sources(meeting.members());
  for (int m = 0; m < meeting.members(); ++m) sources[m] = meeting.Source(m, 0) + range.begin;
  void* target = to;
  kernel::Reduce(op, type, sources.all(), {&target, 1}, range.size() / SizeOf(type), scale);
}

void CopyOneShot(const Meeting& meeting, int source, pattern::Range range, std::byte* to) {
  if (to != nullptr && range.size() > 0) kernel::Copy(to, meeting.Source(source, 0) + range.begin, range.size());
}

}  // namespace hvd::collective::window
