// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/one_shot.h"

#include "hvd/collective/window/per_member.h"

namespace hvd::collective::window {

bool AllBesideMarks(const PositionView& view) {
  for (int m = 0; m < view.members(); ++m) {
    if (!IsBesideMark(view.place(m).location)) return false;
  }
  return true;
}

void ReduceOneShot(const PositionView& view, ReduceOp op, DType type, kernel::Scale scale, pattern::Range range,
                   std::byte* to) {
  if (to == nullptr || range.size() == 0) return;
  PerMember<const void*> sources(view.members());
  for (int m = 0; m < view.members(); ++m) sources[m] = view.Source(m, 0) + range.begin;
  void* target = to;
  kernel::Reduce(op, type, sources.all(), {&target, 1}, range.size() / SizeOf(type), scale);
}

void CopyOneShot(const PositionView& view, int source, pattern::Range range, std::byte* to) {
  if (to != nullptr && range.size() > 0) kernel::Copy(to, view.Source(source, 0) + range.begin, range.size());
}

}  // namespace hvd::collective::window
