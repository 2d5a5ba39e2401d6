// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which ranks have called hvd.init(), as the keys that they set in the job's store tell.
//
// Thread safety: all functions, from any thread.

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace hvd::launch {

class Arrivals {
 public:
  // `changed` is called after the first rank and after the last.
  explicit Arrivals(std::function<void()> changed) : changed_(std::move(changed)) {}

  // A rank has set a key.
  void OnSet(const std::string& key);
  // All ranks have come.
  void OnAll();
  bool all() const;
  // Of `size` ranks, those that have not come while others wait for them; none if nobody waits.
  std::vector<int> Awaited(int size) const;

 private:
  const std::function<void()> changed_;
  mutable std::mutex mutex_;
  std::set<int> here_;
  bool all_ = false;
};

}  // namespace hvd::launch
