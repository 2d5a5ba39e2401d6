// SPDX-License-Identifier: Apache-2.0
#pragma once
// Words as a shell reads and writes them. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/result.h"

namespace hvd::launch {

// Splits as a shell would, without expanding anything. `flag` is what errors call it.
Result<std::vector<std::string>> SplitWords(std::string_view flag, std::string_view text);

// A word so that a shell reads it as it is; `words` separated by spaces.
std::string Quoted(std::string_view word);
std::string Quoted(const std::vector<std::string>& words);

}  // namespace hvd::launch
