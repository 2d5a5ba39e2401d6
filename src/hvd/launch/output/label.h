// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stands before each line of a rank: "[2]<stdout>:" unless the user has other wishes.
//
// Thread safety: immutable.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/launch/plan/hosts.h"

namespace hvd::launch {

struct LabelStyle {
  std::string pattern = "[{rank}]<{stream}>:";
  bool color = false;
};

// `given` is the user's --prefix, if there is one. An unknown {name} in it is an error.
Result<LabelStyle> MakeLabelStyle(const std::optional<std::string>& given, bool timestamp);

class Label {
 public:
  Label(const LabelStyle& style, const Slot& slot, int pid, const char* stream);
  std::string Text(std::chrono::system_clock::time_point now) const;

 private:
  std::string before_, after_;  // around the time
  bool has_time_ = false;
};

}  // namespace hvd::launch
