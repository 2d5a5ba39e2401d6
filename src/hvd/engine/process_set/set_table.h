// SPDX-License-Identifier: Apache-2.0
#pragma once
// The process sets of an engine by id. Ids of removed sets are given out again, the first freed first.
//
// Thread safety: Find, Describe, WithRanks and Pin from any thread; the rest with the progress token.
// Lifetime: a removed set stays in memory while anybody has a Pin, who may have found it just before.

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "hvd/base/types.h"
#include "hvd/engine/process_set/process_set.h"

namespace hvd::engine {

class SetTable {
 public:
  static constexpr int kMost = 4096;  // sets at a time

  // What was found after it was made stays in memory while it lives. nullptr: nothing can be removed.
  class Pin {
   public:
    explicit Pin(const SetTable* table) : table_(table) {
      if (table_ != nullptr) table_->pins_.fetch_add(1, std::memory_order_seq_cst);
    }
    ~Pin() {
      if (table_ != nullptr) table_->pins_.fetch_sub(1, std::memory_order_release);
    }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;

   private:
    const SetTable* const table_;
  };

  // nullptr: there is none with that id.
  ProcessSet* Find(int id) const;
  // With the token: by the number that no other set ever has.
  ProcessSet* FindSerial(int serial) const;
  // Id and sorted ranks of every set, by id.
  std::vector<std::pair<int, std::vector<Rank>>> Describe() const;

  // The id that the next set will have; -1: there are too many.
  int NextId() const;
  // Ids that are left out below that of the set are given out before greater ones.
  void Add(std::unique_ptr<ProcessSet> set);
  void Remove(int id);
  // Whether there are removed sets, and nobody has a Pin: what was submitted to them is with the engine.
  bool reclaimable() const { return !removed_.empty() && pins_.load(std::memory_order_seq_cst) == 0; }
  // Then: takes out those that are idle.
  std::vector<std::unique_ptr<ProcessSet>> Reclaim();
  // A set with exactly these (sorted) ranks; nullptr: there is none.
  ProcessSet* WithRanks(const std::vector<Rank>& ranks) const;

  // By ascending id. A step of one set may add or remove others: walk by index then.
  size_t size() const { return live_.size(); }
  ProcessSet& operator[](size_t index) const { return *live_[index]; }
  auto begin() const { return live_.begin(); }
  auto end() const { return live_.end(); }

 private:
  std::array<std::atomic<ProcessSet*>, kMost> by_id_{};
  std::vector<ProcessSet*> live_;                 // by ascending id
  std::vector<std::unique_ptr<ProcessSet>> all_;  // those of live_
  std::vector<std::unique_ptr<ProcessSet>> removed_;
  std::deque<int> freed_;
  int used_ids_ = 0;
  mutable std::atomic<int> pins_{0};
  mutable std::mutex mutex_;  // guards live_ between the token holder, who changes it, and others
};

}  // namespace hvd::engine
