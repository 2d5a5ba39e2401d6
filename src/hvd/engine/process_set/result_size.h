// SPDX-License-Identifier: Apache-2.0
#pragma once
// Results whose size an operation only knows when all members have asked: who gives how much to whom.
//
// `rows` as Execution::first_dims; `members` and `me` of the process set.
//
// Thread safety: pure functions of their arguments.

#include <cstdint>
#include <vector>

#include "hvd/engine/operation.h"

namespace hvd::engine {

// Whether the operation's result has another size than its input.
bool SizesResult(OpKind op);
// Bytes of one row of the first dimension.
size_t RowBytes(const controller::Signature& signature);
// Fills in which bytes are whose. Returns the rows of this member's result.
int64_t PrepareParts(Operation* op, const std::vector<int64_t>& rows, int members, int me);
// Takes the memory that an alloc function gave for the result.
void TakeMemory(Operation* op);

}  // namespace hvd::engine
