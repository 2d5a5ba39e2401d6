// SPDX-License-Identifier: Apache-2.0
#include "hvd/controller/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hvd/base/tensor_labels.h"

namespace hvd::controller {
namespace {

constexpr size_t kRanksShown = 8;
constexpr size_t kValuesShown = 4;
constexpr size_t kNameShown = 256;

}  // namespace

std::string DescribeRanks(std::span<const Rank> ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  if (ranks.size() <= kRanksShown) return fmt::format("ranks [{}]", fmt::join(ranks, ", "));
  return fmt::format("ranks [{}, ...] ({} in all)", fmt::join(ranks.first(kRanksShown), ", "), ranks.size());
}

std::string DescribeValues(std::span<const Rank> ranks, const std::function<std::string(size_t)>& value) {
  std::vector<std::pair<std::string, std::vector<Rank>>> groups;
  std::unordered_map<std::string, size_t> index;
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::string text = value(i);
    const auto [at, is_new] = index.try_emplace(text, groups.size());
    if (is_new) groups.push_back({std::move(text), {}});
    groups[at->second].second.push_back(ranks[i]);
  }
  std::string out;
  for (size_t g = 0; g < std::min(groups.size(), kValuesShown); ++g) {
    const auto& [text, who] = groups[g];
    fmt::format_to(std::back_inserter(out), "{}{} {} {}", g == 0 ? "" : ", ", DescribeRanks(who),
                   who.size() == 1 ? "has" : "have", text);
  }
  if (groups.size() > kValuesShown) {
    fmt::format_to(std::back_inserter(out), ", the others have {} more values", groups.size() - kValuesShown);
  }
  return out;
}

std::string Quote(std::string_view name) {
  const std::string label = TensorLabelInBrackets(name);
  if (name.size() <= kNameShown) return fmt::format("'{}'{}", name, label);
  return fmt::format("'{}...' ({} bytes){}", name.substr(0, kNameShown), name.size(), label);
}

}  // namespace hvd::controller
