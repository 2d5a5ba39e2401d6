// SPDX-License-Identifier: Apache-2.0
// The search alone, with scores that are functions of the threshold.
#include "hvd/tune/search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

namespace hvd::tune {
namespace {

constexpr int64_t kMebi = 1 << 20;
constexpr int64_t kStart = 128 * kMebi;

using Score = std::function<double(int64_t threshold)>;

// Highest at `peak`, falling by some percent per factor of two.
double Hill(int64_t threshold, int64_t peak, double slope = 0.05) {
  const double away = std::log2(static_cast<double>(threshold) / static_cast<double>(peak));
  return 1000 * std::exp(-slope * away * away);
}

std::vector<int64_t> Drive(Search* search, const Score& score) {
  std::vector<int64_t> asked;
  while (!search->finished()) {
    asked.push_back(search->threshold());
    search->Report(score(search->threshold()));
    if (asked.size() > 100) break;
  }
  EXPECT_LE(asked.size(), 100u);
  return asked;
}

SearchOptions Options() {
  SearchOptions options;
  options.start = kStart;
  return options;
}

TEST(Search, FindsTheHillWhereverItIs) {
  for (int power = 17; power <= 25; ++power) {
    for (const double noise : {0.0, 0.8}) {
      const int64_t peak = int64_t{1} << power;
      SearchOptions options = Options();
      options.noise = noise;
      Search search(options);
      const auto asked = Drive(&search, [&](int64_t threshold) { return Hill(threshold, peak); });
      EXPECT_LE(asked.size(), 20u);
      EXPECT_EQ(asked.front(), kStart);
      EXPECT_EQ(asked.size(), static_cast<size_t>(search.samples()));
      // Within a factor of two of the peak, where the hill is flat.
      EXPECT_GE(Hill(search.threshold(), peak), Hill(2 * peak, peak)) << power << " " << noise;
      EXPECT_EQ(search.best().threshold, search.threshold());
      EXPECT_GT(search.best().score, search.start().score);
    }
  }
}

TEST(Search, TheStartWinsTies) {
  Search flat(Options());
  Drive(&flat, [](int64_t) { return 7.0; });
  EXPECT_EQ(flat.threshold(), kStart);
  Search hardly(Options());
  Drive(&hardly, [](int64_t threshold) { return threshold == kStart ? 1000.0 : 1005.0; });
  EXPECT_EQ(hardly.threshold(), kStart);
  EXPECT_EQ(hardly.best().threshold, kStart);
}

TEST(Search, TheStartStaysWhereItIsTheBest) {
  Search search(Options());
  const auto asked = Drive(&search, [](int64_t threshold) { return static_cast<double>(threshold); });
  EXPECT_EQ(search.threshold(), kStart);
  EXPECT_LE(asked.size(), 20u);
}

TEST(Search, ALuckyScoreDoesNotWin) {
  // Everything is as good as the start, but the first sample of one value is three times as good.
  bool lucky = true;
  Search search(Options());
  Drive(&search,
        [&](int64_t threshold) { return threshold == 8 * kMebi && std::exchange(lucky, false) ? 300.0 : 100.0; });
  EXPECT_FALSE(lucky);
  EXPECT_EQ(search.threshold(), kStart);
}

// Scores with as much noise as a shared machine has: whatever is chosen instead of the start is really better, or as
// good.
TEST(Search, IsNotWorseThanTheStartUnderNoise) {
  int worse = 0;
  int much_better = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);  // its numbers are the same everywhere, those of distributions are not
    const int64_t peak = int64_t{1} << (18 + seed % 10);
    Search search(Options());
    Drive(&search, [&](int64_t threshold) {
      const double chance = static_cast<double>(random()) / static_cast<double>(std::mt19937::max()) - 0.5;
      return Hill(threshold, peak, 0.02) * (1 + 0.2 * chance);
    });
    const double gain = Hill(search.threshold(), peak, 0.02) / Hill(kStart, peak, 0.02);
    if (gain < 0.97) ++worse;
    if (gain > 1.2) ++much_better;
  }
  EXPECT_LE(worse, 4) << "of 200";
  EXPECT_GE(much_better, 80) << "of the 120 where that is possible";
}

TEST(Search, IsDeterministic) {
  const Score score = [](int64_t threshold) { return Hill(threshold, 3 * kMebi); };
  Search one(Options());
  Search other(Options());
  EXPECT_EQ(Drive(&one, score), Drive(&other, score));
}

TEST(Search, WhatIsFixedIsMeasuredOnce) {
  SearchOptions fixed = Options();
  fixed.fixed = true;
  SearchOptions few = Options();
  few.max_samples = Search::kLeastSamples - 1;
  for (const SearchOptions& options : {fixed, few}) {
    Search search(options);
    EXPECT_EQ(Drive(&search, [](int64_t threshold) { return Hill(threshold, kMebi); }), std::vector{kStart});
    EXPECT_EQ(search.threshold(), kStart);
    EXPECT_EQ(search.best().score, search.start().score);
  }
  SearchOptions least = Options();
  least.max_samples = Search::kLeastSamples;
  Search search(least);
  EXPECT_EQ(Drive(&search, [](int64_t threshold) { return Hill(threshold, kMebi); }),
            (std::vector{kStart, kMebi, kStart, kMebi, kMebi, kStart}));
  EXPECT_EQ(search.threshold(), kMebi);
}

TEST(Search, StrangeScoresAreBorne) {
  for (const double strange : {0.0, 1e300, 1e-300}) {
    Search search(Options());
    Drive(&search, [&](int64_t) { return strange; });
    EXPECT_EQ(search.threshold(), kStart);
  }
  SearchOptions off = Options();
  off.start = 0;
  off.max_samples = 1000;
  Search search(off);
  Drive(&search, [](int64_t threshold) { return threshold == 0 ? 1.0 : 2.0; });
  EXPECT_GT(search.threshold(), 0);
}

}  // namespace
}  // namespace hvd::tune
