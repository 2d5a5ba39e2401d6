// SPDX-License-Identifier: Apache-2.0
#pragma once
// Python tracebacks that several ranks print: the first is shown as it is, and the same one of another rank as one
// line, its error. The lines of a traceback are held until it is complete.
//
// Thread safety: none.

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace hvd::launch {

class RepeatedTraces {
 public:
  using Emit = std::function<void(std::string_view line)>;

  // `held` has the traceback that this rank is printing, and is the caller's to keep.
  void Take(int rank, std::string_view line, std::string* held, const Emit& emit);
  // The stream is over: gives out what is held.
  static void End(std::string* held, const Emit& emit);

 private:
  std::map<std::string, int, std::less<>> seen_;  // and the rank that printed it first
};

}  // namespace hvd::launch
