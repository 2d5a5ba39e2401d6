// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/process_set/set_table.h"

#include <algorithm>

namespace hvd::engine {

ProcessSet* SetTable::Find(int id) const {
  return id >= 0 && id < kMost ? by_id_[id].load(std::memory_order_acquire) : nullptr;
}

ProcessSet* SetTable::FindSerial(int serial) const {
  ProcessSet* likely = Find(serial);
  if (likely != nullptr && likely->serial() == serial) return likely;
  const auto at =
      std::find_if(live_.begin(), live_.end(), [&](const ProcessSet* set) { return set->serial() == serial; });
  return at == live_.end() ? nullptr : *at;
}

std::vector<std::pair<int, std::vector<Rank>>> SetTable::Describe() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<int, std::vector<Rank>>> sets;
  for (const ProcessSet* set : live_) sets.emplace_back(set->id(), set->ranks());
  return sets;
}

int SetTable::NextId() const {
  if (!freed_.empty()) return freed_.front();
  return used_ids_ < kMost ? used_ids_ : -1;
}

void SetTable::Add(std::unique_ptr<ProcessSet> set) {
  const int id = set->id();
  if (!freed_.empty() && freed_.front() == id) {
    freed_.pop_front();
  } else {
    while (used_ids_ < id) freed_.push_back(used_ids_++);
    ++used_ids_;
  }
  const std::lock_guard lock(mutex_);
  live_.insert(std::upper_bound(live_.begin(), live_.end(), id, [](int i, const ProcessSet* s) { return i < s->id(); }),
               set.get());
  by_id_[id].store(set.get(), std::memory_order_release);
  all_.push_back(std::move(set));
}

void SetTable::Remove(int id) {
  // Before pins_ is read: who pins later finds nothing.
  by_id_[id].exchange(nullptr, std::memory_order_seq_cst);
  freed_.push_back(id);
  const std::lock_guard lock(mutex_);
  std::erase_if(live_, [id](const ProcessSet* set) { return set->id() == id; });
  const auto at = std::ranges::find_if(all_, [id](const auto& set) { return set->id() == id; });
  removed_.push_back(std::move(*at));
  all_.erase(at);
}

std::vector<std::unique_ptr<ProcessSet>> SetTable::Reclaim() {
  std::vector<std::unique_ptr<ProcessSet>> idle;
  for (auto& set : removed_) {
    if (!set->busy()) idle.push_back(std::move(set));
  }
  std::erase(removed_, nullptr);
  return idle;
}

ProcessSet* SetTable::WithRanks(const std::vector<Rank>& ranks) const {
  const std::lock_guard lock(mutex_);
  const auto at =
      std::find_if(live_.begin(), live_.end(), [&](const ProcessSet* set) { return set->ranks() == ranks; });
  return at == live_.end() ? nullptr : *at;
}

}  // namespace hvd::engine
