// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/world.h"

#include <algorithm>
#include <unordered_map>

#include "hvd/algorithms/change.h"

namespace hvd::engine {

int Layout::LocalOf(Rank other) const {
  const auto at = std::find(local_ranks.begin(), local_ranks.end(), other);
  return at == local_ranks.end() ? -1 : static_cast<int>(at - local_ranks.begin());
}

SharedSettings SettingsOf(const Config& config) {
  SharedSettings settings;
  const algorithms::Limits limits = algorithms::LimitsFor(config.size, config.eager_limit, config.chunk_bytes);
  settings.eager_bytes = static_cast<int64_t>(limits.eager_bytes);
  settings.chunk_bytes = static_cast<int64_t>(limits.chunk_bytes);
  settings.fusion_threshold = config.fusion_threshold;
  settings.cache_capacity = config.cache_capacity;
  settings.algorithms = algorithms::WithoutBlanks(config.algorithms);
  return settings;
}

Result<algorithms::Table> TableOf(const SharedSettings& settings) {
  const algorithms::Limits limits{static_cast<size_t>(settings.eager_bytes), static_cast<size_t>(settings.chunk_bytes)};
  return algorithms::Table::Make(limits, settings.algorithms);
}

Layout MakeLayout(Rank rank, const std::vector<std::string>& host_ids) {
  Layout layout;
  layout.rank = rank;
  layout.size = static_cast<int>(host_ids.size());
  std::unordered_map<std::string, int> hosts;
  std::vector<int> local_sizes;
  std::vector<int> local_rank_of(host_ids.size());
  for (size_t r = 0; r < host_ids.size(); ++r) {
    const int host = hosts.emplace(host_ids[r], static_cast<int>(hosts.size())).first->second;
    if (host == static_cast<int>(local_sizes.size())) local_sizes.push_back(0);
    layout.host_of.push_back(host);
    local_rank_of[r] = local_sizes[host]++;
  }
  const int my_host = layout.host_of[rank];
  layout.local_rank = local_rank_of[rank];
  layout.local_size = local_sizes[my_host];
  layout.cross_size = 0;
  for (int host = 0; host < static_cast<int>(local_sizes.size()); ++host) {
    if (local_sizes[host] <= layout.local_rank) continue;
    if (host < my_host) ++layout.cross_rank;
    ++layout.cross_size;
  }
  layout.homogeneous = std::ranges::all_of(local_sizes, [&](int n) { return n == local_sizes[0]; });
  for (size_t r = 0; r < host_ids.size(); ++r) {
    if (layout.host_of[r] == my_host) layout.local_ranks.push_back(static_cast<Rank>(r));
  }
  layout.reported = {layout.local_rank, layout.local_size, layout.cross_rank, layout.cross_size};
  return layout;
}

void Report(const Config& config, Layout* layout) {
  if (config.local_size > 0) {
    layout->reported.local_rank = config.local_rank;
    layout->reported.local_size = config.local_size;
  }
  if (config.cross_size > 0) {
    layout->reported.cross_rank = config.cross_rank;
    layout->reported.cross_size = config.cross_size;
  }
}

}  // namespace hvd::engine
