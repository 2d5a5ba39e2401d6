// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small operations: every member's data lies beside its mark, so whoever sees all marks can finish alone.
//
// Cost: one step; each member reads (p-1) n bytes. No second round: the slots are reused only when all released them.

#include "hvd/base/types.h"
#include "hvd/collective/pattern/slices.h"
#include "hvd/collective/window/position_view.h"

namespace hvd::collective::window {

// Whether every member's data is beside its mark. All members come to the same answer: they read the same headers.
bool AllBesideMarks(const PositionView& view);

// Reduces `range` of all members' data in member order into `to`; nothing if `to` is nullptr.
void ReduceOneShot(const PositionView& view, ReduceOp op, DType type, kernel::Scale scale, pattern::Range range,
                   std::byte* to);

// Copies `range` of the data of member `source` to `to`; nothing if `to` is nullptr.
void CopyOneShot(const PositionView& view, int source, pattern::Range range, std::byte* to);

}  // namespace hvd::collective::window
