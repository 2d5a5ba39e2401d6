// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/suggest.h"

#include <fmt/format.h>

#include <algorithm>

namespace hvd {
namespace {

constexpr size_t kMostSlips = 2;

// Optimal string alignment; the words are short.
size_t Slips(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // of a word that could be meant
  if (word.size() < 2 || word.size() > kLongest) return {};
  std::string best;
  // In a short word two slips leave nothing of it.
  size_t fewest = std::min(kMostSlips, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t slips = Slips(word, candidate);
    if (slips < fewest) fewest = slips, best = candidate;
  }
  if (!best.empty()) return best;
  const auto begun = std::ranges::find_if(
      candidates, [&](const std::string& candidate) { return word.size() > 3 && candidate.starts_with(word); });
  return begun == candidates.end() ? std::string() : *begun;
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = Nearest(word, candidates);
  return nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest);
}

}  // namespace hvd
