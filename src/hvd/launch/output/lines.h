// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whole lines out of what one stream of a rank writes, in whatever pieces that comes.
//
// A progress bar rewrites its line with '\r': of such a line only the last state is given out, when it ends, or now and
// then while it grows. A line longer than kLongest is given out in parts, cut between characters.
//
// Thread safety: none.

#include <functional>
#include <string>
#include <string_view>

#include "hvd/base/clock.h"

namespace hvd::launch {

class LineCutter {
 public:
  static constexpr size_t kLongest = 64 << 10;
  // How long a line that is being rewritten may show nothing.
  static constexpr Duration kPatience = std::chrono::seconds(5);
  using Emit = std::function<void(std::string_view line)>;  // without its '\n'

  explicit LineCutter(Emit emit) : emit_(std::move(emit)) {}

  void Feed(std::string_view bytes, Time now);
  // The stream is over: gives out what lacks its '\n'.
  void End();

 private:
  void Rewrite(Time now);
  void GiveOut();

  Emit emit_;
  std::string line_;       // since the last '\n' or '\r'
  std::string rewritten_;  // the last state of a line that a '\r' began to replace
  bool rewriting_ = false;
  Time shown_{};
};

}  // namespace hvd::launch
