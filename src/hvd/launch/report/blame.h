// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank's output says about who is at fault. The library's errors name the rank that was lost; a rank that ends
// with such an error ended because of the other.

#include <optional>
#include <string_view>

namespace hvd::launch {

struct Blame {
  int rank = -1;
  bool silent = false;  // it did not respond, or did not come: it may well be alive, and was not the one to end first
  bool before_init = false;  // it ended, and had never called hvd.init()
};

// The rank that one line of output blames, if it does.
std::optional<Blame> FindBlame(std::string_view line);

}  // namespace hvd::launch
