// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who is where: a small key-value store that ranks use to meet. Keys and values are short byte strings (limits below).
//
// Thread safety: a Store may be used from one thread at a time; Wait blocks that thread, bounded by its timeout.

#include <memory>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"

namespace hvd::rendezvous {

inline constexpr size_t kMaxKeyBytes = 256;
inline constexpr size_t kMaxValueBytes = 1 << 20;

// Where a launcher that serves the store says which ranks have ended well, by their numbers, separated by spaces: who
// waits for one of them waits in vain.
inline constexpr const char* kLeftKey = "hvd/left";

// Where the launcher of an elastic job says which ranks of a generation have ended in any other way, in the same form.
inline std::string LostKey(int generation) { return "hvd/lost/" + std::to_string(generation); }

class Store {
 public:
  virtual ~Store() = default;
  // Overwrites.
  virtual Status Set(const std::string& key, const std::string& value) = 0;
  // Waits until all keys exist, then returns their values in order. kDeadlineExceeded names the keys that are missing.
  virtual Result<std::vector<std::string>> Wait(const std::vector<std::string>& keys, Duration timeout) = 0;
  // Adds to a counter (missing: 0) and returns the new value.
  virtual Result<int64_t> Add(const std::string& key, int64_t delta) = 0;
  // Removes a key; not an error if it is absent.
  virtual Status Delete(const std::string& key) = 0;
};

}  // namespace hvd::rendezvous
