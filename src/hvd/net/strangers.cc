// SPDX-License-Identifier: Apache-2.0
#include "hvd/net/strangers.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "hvd/net/crypto.h"

namespace hvd::net {
namespace {

// One machine usually has all IPv6 addresses of a /64.
std::string SourceOf(const Address& from) {
  if (from.family() != AF_INET6) return from.host();
  sockaddr_in6 raw{};
  std::memcpy(&raw, from.raw(), sizeof raw);
  if (IN6_IS_ADDR_V4MAPPED(&raw.sin6_addr)) return from.host();
  return {reinterpret_cast<const char*>(&raw.sin6_addr), 8};
}

}  // namespace

std::optional<Strangers::Id> Strangers::Add(Id id, const Address& from) {
  std::optional<Id> victim;
  if (source_of_.size() >= most_) {
    victim = PickVictim();
    Remove(*victim);
  }
  std::string source = SourceOf(from);
  by_source_[source].push_back(id);
  source_of_.emplace(id, std::move(source));
  return victim;
}

void Strangers::Remove(Id id) {
  const auto found = source_of_.find(id);
  if (found == source_of_.end()) return;
  const auto source = by_source_.find(found->second);
  std::erase(source->second, id);
  if (source->second.empty()) by_source_.erase(source);
  source_of_.erase(found);
}

Strangers::Id Strangers::PickVictim() const {
  size_t most = 0;
  for (const auto& [source, ids] : by_source_) most = std::max(most, ids.size());
  std::vector<Id> candidates;
  for (const auto& [source, ids] : by_source_) {
    if (ids.size() == most) candidates.insert(candidates.end(), ids.begin(), ids.end());
  }
  uint32_t random = 0;
  // Without random bytes the choice can be foreseen, which is all.
  (void)RandomBytes({reinterpret_cast<uint8_t*>(&random), sizeof random});
  return candidates[random % candidates.size()];
}

}  // namespace hvd::net
