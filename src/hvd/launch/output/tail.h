// SPDX-License-Identifier: Apache-2.0
#pragma once
// The last lines of a stream, for the failure report. Bounded in lines and bytes.

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/utf8.h"

namespace hvd::launch {

class Tail {
 public:
  static constexpr size_t kMostLines = 200;
  static constexpr size_t kMostLineBytes = 1000;

  void Add(std::string_view line) {
    lines_.emplace_back(Cut(line, kMostLineBytes));
    if (lines_.size() > kMostLines) lines_.pop_front();
  }

  // The last Python traceback with what stands after it, if there is one not too far up; else the last `most` lines.
  std::vector<std::string> Last(size_t most) const {
    size_t from = lines_.size() - std::min(most, lines_.size());
    for (size_t i = lines_.size(); i-- > 0;) {
      if (lines_[i].starts_with("Traceback (most recent call last)")) {
        from = std::min(from, i);
        break;
      }
    }
    return {lines_.begin() + static_cast<ptrdiff_t>(from), lines_.end()};
  }

 private:
  std::deque<std::string> lines_;
};

}  // namespace hvd::launch
