// SPDX-License-Identifier: Apache-2.0
#include "hvd/rendezvous/memory/store.h"

#include <condition_variable>
#include <mutex>
#include <unordered_map>

#include "hvd/net/deadline.h"
#include "hvd/rendezvous/limits.h"

namespace hvd::rendezvous::memory {

struct Content {
  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_map<std::string, std::string> values;
};

std::unique_ptr<rendezvous::Store> Store::Named(const std::string& name) {
  // Leaked on purpose: stores may be opened and closed while the process exits.
  static auto* const mutex = new std::mutex;
  static auto* const contents = new std::unordered_map<std::string, std::weak_ptr<Content>>;
  const std::lock_guard lock(*mutex);
  std::shared_ptr<Content> content = (*contents)[name].lock();
  if (!content) {
    std::erase_if(*contents, [](const auto& entry) { return entry.second.expired(); });
    content = std::make_shared<Content>();
    (*contents)[name] = content;
  }
  return std::unique_ptr<rendezvous::Store>(new Store(std::move(content)));
}

Status Store::Set(const std::string& key, const std::string& value) {
  HVD_RETURN_IF_ERROR(CheckKey(key));
  HVD_RETURN_IF_ERROR(CheckValue(key, value));
  {
    const std::lock_guard lock(content_->mutex);
    content_->values[key] = value;
  }
  content_->changed.notify_all();
  return {};
}

Result<std::vector<std::string>> Store::Wait(const std::vector<std::string>& keys, Duration timeout) {
  HVD_RETURN_IF_ERROR(CheckKeys(keys));
  const Time deadline = net::DeadlineAfter(timeout);
  std::unique_lock lock(content_->mutex);
  const auto& values = content_->values;
  const auto complete = [&] {
    for (const std::string& key : keys) {
      if (!values.contains(key)) return false;
    }
    return true;
  };
  while (!complete()) {
    if (net::Now() >= deadline) {
      std::vector<std::string> missing;
      for (const std::string& key : keys) {
        if (!values.contains(key)) missing.push_back(key);
      }
      return Fail(MissingKeys(missing, timeout));
    }
    // wait_until overflows inside libstdc++ for the farthest deadlines.
    content_->changed.wait_for(lock, std::min<Duration>(net::Left(deadline), std::chrono::hours(1)));
  }
  std::vector<std::string> found;
  found.reserve(keys.size());
  for (const std::string& key : keys) found.push_back(values.at(key));
  return found;
}

Result<int64_t> Store::Add(const std::string& key, int64_t delta) {
  HVD_RETURN_IF_ERROR(CheckKey(key));
  int64_t sum = 0;
  {
    const std::lock_guard lock(content_->mutex);
    const auto old = content_->values.find(key);
    HVD_ASSIGN_OR_RETURN(sum, AddToCounter(key, old == content_->values.end() ? "" : old->second, delta));
    content_->values[key] = std::to_string(sum);
  }
  content_->changed.notify_all();
  return sum;
}

Status Store::Delete(const std::string& key) {
  HVD_RETURN_IF_ERROR(CheckKey(key));
  const std::lock_guard lock(content_->mutex);
  content_->values.erase(key);
  return {};
}

}  // namespace hvd::rendezvous::memory
