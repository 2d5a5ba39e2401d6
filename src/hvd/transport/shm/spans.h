// SPDX-License-Identifier: Apache-2.0
#pragma once
// Free ranges of a linear space, best fit, merged when neighbours are free. Cost: O(log n) per call.
//
// Thread safety: none; the Arena's lock guards it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace hvd::transport::shm {

class Spans {
 public:
  explicit Spans(uint64_t bytes);
  // The start of a range of `bytes` at a multiple of `align`; -1 if none is free.
  int64_t Take(uint64_t bytes, uint64_t align);
  void Give(uint64_t offset, uint64_t bytes);
  // For tests: how many separate free ranges there are.
  size_t fragments() const { return by_offset_.size(); }

 private:
  void Insert(uint64_t offset, uint64_t bytes);
  void Erase(std::map<uint64_t, uint64_t>::iterator span);

  std::map<uint64_t, uint64_t> by_offset_;            // offset -> bytes
  std::set<std::pair<uint64_t, uint64_t>> by_bytes_;  // (bytes, offset)
};

}  // namespace hvd::transport::shm
