// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/limits.h"

#include <charconv>
#include <chrono>

#include "hvd/rendezvous/store.h"

namespace hvd::rendezvous {
namespace {

constexpr size_t kNamedKeys = 16;

}  // namespace

Status CheckKey(const std::string& key) {
  if (!key.empty() && key.size() <= kMaxKeyBytes) return {};
  return Fail(Code::kInvalidArgument, "store key of {} bytes: allowed are 1 to {}", key.size(), kMaxKeyBytes);
}

Status CheckKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) HVD_RETURN_IF_ERROR(CheckKey(key));
  return {};
}

Status CheckValue(const std::string& key, const std::string& value) {
  if (value.size() <= kMaxValueBytes) return {};
  return Fail(Code::kInvalidArgument, "store value of {} bytes for key '{}': allowed are {}", value.size(), key,
              kMaxValueBytes);
}

Error MissingKeys(const std::vector<std::string>& missing, Duration waited) {
  std::string names;
  for (size_t i = 0; i < missing.size() && i < kNamedKeys; ++i) names += (i == 0 ? "" : ", ") + missing[i];
  if (missing.size() > kNamedKeys) names += fmt::format(" and {} more", missing.size() - kNamedKeys);
  const double seconds = std::chrono::duration<double>(waited).count();
  return {Code::kDeadlineExceeded, fmt::format("not set in the store after {:.3g} s: {}", seconds, names)};
}

Result<int64_t> AddToCounter(const std::string& key, const std::string& old, int64_t delta) {
  int64_t value = 0;
  if (!old.empty()) {
    const auto [end, error] = std::from_chars(old.data(), old.data() + old.size(), value);
    if (error != std::errc() || end != old.data() + old.size()) {
      return Fail(Code::kInvalidArgument, "store key '{}' holds no counter", key);
    }
  }
  int64_t sum = 0;
  if (__builtin_add_overflow(value, delta, &sum)) {
    return Fail(Code::kInvalidArgument, "counter '{}' would overflow", key);
  }
  return sum;
}

}  // namespace hvd::rendezvous
