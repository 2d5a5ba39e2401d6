// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory that operations in flight use: what one writes no other may use. The time for a look-up grows with the
// logarithm of their number, because programs have thousands in flight.
//
// Thread safety: none.

#include <cstddef>
#include <cstdint>
#include <map>

namespace hvd::engine {

struct Operation;

class BuffersInUse {
 public:
  struct Use {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool writes = false;
    Operation* op = nullptr;
  };

  // A use that cannot be together with this one, or nullptr.
  const Use* InTheWayOf(const void* begin, size_t bytes, bool writes) const;
  // Nothing is in its way. The operation is in here at most once for what it writes and once for what it reads.
  void Add(Operation* op, const void* begin, size_t bytes, bool writes);
  // Does nothing if the operation is not in here.
  void Remove(Operation* op);

 private:
  std::map<uintptr_t, Use> written_;  // by begin; they do not overlap
  std::multimap<uintptr_t, Use> read_;
  uintptr_t longest_read_ = 0;  // bytes of the longest one since read_ was empty
};

}  // namespace hvd::engine
