// SPDX-License-Identifier: Apache-2.0
#pragma once
// "did you mean ...?"

#include <string>
#include <string_view>
#include <vector>

namespace hvd {

// The candidate that `word` was probably meant to be, or nothing: one that it begins or that is at most two slips
// (a letter wrong, missing, too much, or two swapped) away.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean X?", or nothing.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace hvd
