// SPDX-License-Identifier: Apache-2.0
#pragma once
// What people call the tensors of operations: 'optimizer.grad_3' is the gradient of the variable 'head/kernel'. Ranks
// agree by names; labels stand beside them in timelines, stall reports and errors, and are never sent.
//
// Thread safety: all functions, from any thread.

#include <string>
#include <string_view>

namespace hvd {

// Replaces the label of the operations of this name. A process keeps the first 65536 names.
void LabelTensor(std::string_view name, std::string_view label);

// Empty: there is none.
std::string TensorLabel(std::string_view name);

// " (head/kernel)", or nothing: to be put behind a name.
std::string TensorLabelInBrackets(std::string_view name);

}  // namespace hvd
