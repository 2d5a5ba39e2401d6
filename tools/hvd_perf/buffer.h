// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

#include "hvd/hvd.h"

namespace hvd_perf {

// Memory of the kind under test, present before anything is timed.
class Buffer {
 public:
  // `offset` as in Options.
  Buffer(uint64_t bytes, bool arena, int offset);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() { return data_; }
  void Clear();
  // Gives its whole pages back to the system, so that the next store to each of them faults. Private memory only.
  void DropPages();
  hvd_buffer Describe() { return {data_, bytes_, HVD_CPU, 0}; }

 private:
  uint64_t bytes_;
  bool arena_;
  void* block_;  // what was allocated
  void* data_;
};

}  // namespace hvd_perf
