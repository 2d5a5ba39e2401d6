// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decides whether an asynchronous operation waits for a short time, so that it travels with those that follow.
//
// A thread that submits operations to a set without shared memory in quick succession, and waits for none of them, will
// submit more. For a short time they wait for each other: one message requests all of them, and they run as one. If the
// engine's thread were woken for each, it would take the core from the caller, and end each before the next one is
// submitted, with one round trip for each.
//
// Thread safety: ShouldBatch and NoteWait from any thread; Hold, holding and Flush with the progress token.

#include <algorithm>
#include <atomic>
#include <utility>

#include "hvd/base/clock.h"

namespace hvd::engine {

class SubmissionBatcher {
 public:
  // For how long an operation waits at most.
  static constexpr Duration kTime = std::chrono::microseconds(50);

  // Call for each asynchronous operation. Returns whether it is to wait for company.
  bool ShouldBatch(Time now) {
    const bool follows = now - last_.exchange(now, std::memory_order_relaxed) < kInARow;
    const int before = in_a_row_.load(std::memory_order_relaxed);
    in_a_row_.store(follows ? std::min(before, kFewInARow + 1) + 1 : 0, std::memory_order_relaxed);
    return follows && before >= kFewInARow;
  }
  // A caller waits for an operation: those that it submits next do not follow.
  void NoteWait() {
    if (in_a_row_.load(std::memory_order_relaxed) > 0) in_a_row_.store(0, std::memory_order_relaxed);
  }

  // An operation has begun and is not sent yet.
  void Hold() { ++held_; }
  bool holding() const { return held_ > 0; }
  // What is held goes now.
  void Flush() {
    if (std::exchange(held_, 0) != 1) return;
    // The batch held one operation. If the next batch does, too, each operation depends on the one before, and batching
    // only delays them.
    const bool again = in_a_row_.load(std::memory_order_relaxed) <= kFewInARow + 1;
    in_a_row_.store(again ? -kAfterAlone : kFewInARow, std::memory_order_relaxed);
  }

 private:
  // Operations follow each other if none is later than this after the one before.
  static constexpr Duration kInARow = std::chrono::microseconds(500);
  static constexpr int kFewInARow = 1;
  // How many are not batched after two that found no company.
  static constexpr int kAfterAlone = 64;

  std::atomic<Time> last_{};
  std::atomic<int> in_a_row_{0};
  int held_ = 0;
};

}  // namespace hvd::engine
