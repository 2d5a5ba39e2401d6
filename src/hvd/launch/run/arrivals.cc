// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/arrivals.h"

#include <charconv>
#include <string_view>

namespace hvd::launch {

void Arrivals::OnSet(const std::string& key) {
  // What a rank sets first; see engine/bootstrap/rendezvous_protocol.h.
  constexpr std::string_view kAt = "hvd/at/";
  if (!key.starts_with(kAt)) return;
  int rank = 0;
  if (std::from_chars(key.data() + kAt.size(), key.data() + key.size(), rank).ec != std::errc()) return;
  std::unique_lock lock(mutex_);
  const bool first = here_.empty();
  here_.insert(rank);
  lock.unlock();
  if (first) changed_();
}

void Arrivals::OnAll() {
  {
    std::lock_guard lock(mutex_);
    all_ = true;
  }
  changed_();
}

bool Arrivals::all() const {
  std::lock_guard lock(mutex_);
  return all_;
}

std::vector<int> Arrivals::Awaited(int size) const {
  std::lock_guard lock(mutex_);
  std::vector<int> awaited;
  for (int rank = 0; rank < size && !all_ && !here_.empty(); ++rank) {
    if (!here_.contains(rank)) awaited.push_back(rank);
  }
  return awaited;
}

}  // namespace hvd::launch
