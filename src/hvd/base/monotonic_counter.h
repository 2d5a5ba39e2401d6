// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers that only grow: one thread at a time adds (whoever has the progress token), anybody reads, at any time.
//
// Thread safety: Add by one thread at a time, with something that orders one after the other; load by all. No reader
// sees half of an addition, and none costs the writer more than a plain addition.

#include <atomic>
#include <cstdint>

namespace hvd {

class MonotonicCounter {
 public:
  void Add(uint64_t more) {
    // One writer at a time, so no read-modify-write is needed.
    value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
  }
  uint64_t load(std::memory_order order = std::memory_order_relaxed) const { return value_.load(order); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Bytes to and from one peer.
struct PeerByteCounts {
  MonotonicCounter sent;
  MonotonicCounter received;
};

}  // namespace hvd
