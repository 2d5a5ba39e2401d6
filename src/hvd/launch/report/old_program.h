// SPDX-License-Identifier: Apache-2.0
#pragma once
// What to write instead of a line for older TensorFlow or Keras that a rank failed at. Pure.
//
// `python -m horovod.compat` knows more about programs; this knows the line that failed and how.

#include <optional>
#include <string>
#include <vector>

namespace hvd::launch {

// The suggestion for a rank whose stderr ends with these lines, if such a line is what it failed at.
std::optional<std::string> SuggestForOldProgram(const std::vector<std::string>& last_lines);

}  // namespace hvd::launch
