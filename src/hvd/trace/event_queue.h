// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bounded queue from many threads to one, for those who cannot wait: what does not fit is dropped and counted.
//
// Each slot has a turn: t while it waits for entry t, t+1 when it holds entry t (D. Vyukov's bounded queue).
//
// Thread safety: Push from any thread; Pop, and Clear, from one at a time.

#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

namespace hvd::trace {

template <typename T>
class EventQueue {
 public:
  // Rounded up to a power of two.
  explicit EventQueue(uint64_t capacity)
      : mask_(std::bit_ceil(capacity) - 1), slots_(std::make_unique<Slot[]>(mask_ + 1)) {
    for (uint64_t i = 0; i <= mask_; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }

  // `fill` writes the entry where it stays. False: full.
  template <typename Fill>
  bool Push(Fill&& fill) {
    uint64_t tail = tail_.load(std::memory_order_relaxed);
    while (true) {
      Slot& slot = slots_[tail & mask_];
      // Acquire: with Pop's release, which gave the slot back.
      const auto ahead = static_cast<int64_t>(slot.turn.load(std::memory_order_acquire) - tail);
      if (ahead < 0) {
        dropped_.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
      if (ahead > 0) {
        tail = tail_.load(std::memory_order_relaxed);
      } else if (tail_.compare_exchange_weak(tail, tail + 1, std::memory_order_relaxed)) {
        fill(slot.entry);
        // Sequentially consistent, with empty(): either the reader sees the entry before it sleeps, or the writer sees
        // that the reader sleeps.
        slot.turn.store(tail + 1, std::memory_order_seq_cst);
        return true;
      }
    }
  }

  // `take` reads the entry where it is. False: empty.
  template <typename Take>
  bool Pop(Take&& take) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    Slot& slot = slots_[head & mask_];
    if (slot.turn.load(std::memory_order_acquire) != head + 1) return false;
    take(static_cast<const T&>(slot.entry));
    slot.turn.store(head + mask_ + 1, std::memory_order_release);
    head_.store(head + 1, std::memory_order_relaxed);
    return true;
  }

  bool empty() const {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    return slots_[head & mask_].turn.load(std::memory_order_seq_cst) != head + 1;
  }
  bool half_full() const {
    return tail_.load(std::memory_order_relaxed) - head_.load(std::memory_order_relaxed) > mask_ / 2;
  }
  // Entries that were ever begun, and that were ever taken.
  uint64_t begun() const { return tail_.load(std::memory_order_relaxed); }
  uint64_t taken() const { return head_.load(std::memory_order_relaxed); }
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint64_t capacity() const { return mask_ + 1; }

 private:
  struct alignas(64) Slot {
    std::atomic<uint64_t> turn{0};
    T entry;
  };

  const uint64_t mask_;
  const std::unique_ptr<Slot[]> slots_;
  alignas(64) std::atomic<uint64_t> tail_{0};
  std::atomic<uint64_t> dropped_{0};
  alignas(64) std::atomic<uint64_t> head_{0};
};

}  // namespace hvd::trace
