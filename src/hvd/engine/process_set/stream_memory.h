// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared memory for the streams of process sets: cut off the window's control segment, and given out again when a set
// is removed.
//
// All local ranks take and give back in the order of the log, members or not, so they get the same offsets.
// Thread safety: with the progress token.

#include <cstring>
#include <map>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/transport/window.h"

namespace hvd::engine {

class StreamMemory {
 public:
  // Zeroed, unless a peer was faster and has written already.
  Result<std::byte*> Take(transport::Window* window, size_t bytes) {
    std::vector<std::byte*>& free = free_[bytes];
    if (free.empty()) return window->Carve(bytes);
    std::byte* memory = free.back();
    free.pop_back();
    return memory;
  }
  // When nobody uses it any more and nobody can have taken it again: every rank does this before it agrees to another
  // set. One rank clears it for all.
  void GiveBack(std::byte* memory, size_t bytes, bool clear) {
    if (clear) std::memset(memory, 0, bytes);
    free_[bytes].push_back(memory);
  }

 private:
  std::map<size_t, std::vector<std::byte*>> free_;  // by size
};

}  // namespace hvd::engine
