// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every Store checks in the same way and with the same words.

#include <cstdint>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"

namespace hvd::rendezvous {

// 1 to kMaxKeyBytes bytes.
Status CheckKey(const std::string& key);
Status CheckKeys(const std::vector<std::string>& keys);
Status CheckValue(const std::string& key, const std::string& value);

// "not set after 5 s: a, b and 3 more".
Error MissingKeys(const std::vector<std::string>& missing, Duration waited);

// A counter is kept as decimal text, so that Wait can read it. `old` is the value so far, empty for a missing key.
Result<int64_t> AddToCounter(const std::string& key, const std::string& old, int64_t delta);

}  // namespace hvd::rendezvous
