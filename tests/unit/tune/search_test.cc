// SPDX-License-Identifier: Apache-2.0
// The search alone, with scores that are functions of the values.
#include "hvd/tune/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "hvd/tune/parameters.h"

namespace hvd::tune {
namespace {

constexpr int64_t kMebi = 1 << 20;
constexpr int64_t kStart = 128 * kMebi;

using Score = std::function<double(int64_t threshold)>;
using testing::ElementsAre;

// Highest at `peak`, falling by some percent per factor of two.
double Hill(int64_t threshold, int64_t peak, double slope = 0.05) {
  const double away = std::log2(static_cast<double>(threshold) / static_cast<double>(peak));
  return 1000 * std::exp(-slope * away * away);
}

std::vector<Point> DriveAll(Search* search, const std::function<double(const Point&)>& score) {
  std::vector<Point> asked;
  while (!search->finished()) {
    asked.push_back(search->point());
    search->Report(score(search->point()));
    if (asked.size() > 100) break;
  }
  EXPECT_LE(asked.size(), 100u);
  return asked;
}

// With one parameter.
std::vector<int64_t> Drive(Search* search, const Score& score) {
  std::vector<int64_t> asked;
  for (const Point& point : DriveAll(search, [&](const Point& at) { return score(at[0]); })) {
    asked.push_back(point[0]);
  }
  return asked;
}

SearchOptions Options(int64_t start = kStart) {
  Beginning beginning;
  beginning.fusion_threshold = start;
  SearchOptions options;
  options.axes = {AxesFor(beginning)[kFusion]};
  return options;
}

int64_t Threshold(const Search& search) { return search.point()[0]; }

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
      EXPECT_GE(Hill(Threshold(search), peak), Hill(2 * peak, peak)) << power << " " << noise;
      EXPECT_EQ(search.best().point, search.point());
      EXPECT_GT(search.best().score, search.start().score);
    }
  }
}

TEST(Search, TheStartWinsTies) {
  Search flat(Options());
  Drive(&flat, [](int64_t) { return 7.0; });
  EXPECT_EQ(Threshold(flat), kStart);
  Search hardly(Options());
  Drive(&hardly, [](int64_t threshold) { return threshold == kStart ? 1000.0 : 1005.0; });
  EXPECT_EQ(Threshold(hardly), kStart);
  EXPECT_EQ(hardly.best().point[0], kStart);
}

TEST(Search, TheStartStaysWhereItIsTheBest) {
  Search search(Options());
  const auto asked = Drive(&search, [](int64_t threshold) { return static_cast<double>(threshold); });
  EXPECT_EQ(Threshold(search), kStart);
  EXPECT_LE(asked.size(), 20u);
}

TEST(Search, ALuckyScoreDoesNotWin) {
  // Everything is as good as the start, but the first sample of one value is three times as good.
  bool lucky = true;
  Search search(Options());
  Drive(&search,
        [&](int64_t threshold) { return threshold == 8 * kMebi && std::exchange(lucky, false) ? 300.0 : 100.0; });
  EXPECT_FALSE(lucky);
  EXPECT_EQ(Threshold(search), kStart);
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
    const double gain = Hill(Threshold(search), peak, 0.02) / Hill(kStart, peak, 0.02);
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
  fixed.axes = {Axis{kStart}};
  SearchOptions few = Options();
  few.max_samples = Search::kLeastSamples - 1;
  for (const SearchOptions& options : {fixed, few}) {
    Search search(options);
    EXPECT_EQ(Drive(&search, [](int64_t threshold) { return Hill(threshold, kMebi); }), std::vector{kStart});
    EXPECT_EQ(Threshold(search), kStart);
    EXPECT_EQ(search.best().score, search.start().score);
  }
  SearchOptions least = Options();
  least.max_samples = Search::kLeastSamples;
  Search search(least);
  EXPECT_EQ(Drive(&search, [](int64_t threshold) { return Hill(threshold, kMebi); }),
            (std::vector{kStart, kMebi, kStart, kMebi, kMebi, kStart}));
  EXPECT_EQ(Threshold(search), kMebi);
}

TEST(Search, StrangeScoresAreBorne) {
  for (const double strange : {0.0, 1e300, 1e-300}) {
    Search search(Options());
    Drive(&search, [&](int64_t) { return strange; });
    EXPECT_EQ(Threshold(search), kStart);
  }
  SearchOptions off = Options(0);
  off.max_samples = 1000;
  Search search(off);
  Drive(&search, [](int64_t threshold) { return threshold == 0 ? 1.0 : 2.0; });
  EXPECT_GT(Threshold(search), 0);
}

// Of all parameters: peaks of their own, and what each is worth.
double Landscape(const Point& point, const Point& peak) {
  double score = 1000;
  for (size_t i = 0; i < point.size(); ++i) {
    const double away = std::log2(static_cast<double>(point[i]) / static_cast<double>(peak[i]));
    score *= std::exp(-0.05 * away * away);
  }
  return score;
}

TEST(Search, ParametersAreSearchedOneAfterTheOther) {
  const Point start{kStart, 100, 64 << 10, 1000};
  for (const Point& peak : {Point{kMebi, 50, 4 << 10, 100}, Point{8 * kMebi, 200, 64 << 10, 10},
                            Point{64 * kMebi, 25, 16 << 10, 1000}, Point{kMebi, 100, 64 << 10, 1000}}) {
    Search search({.axes = AxesFor({})});
    const auto asked = DriveAll(&search, [&](const Point& point) { return Landscape(point, peak); });
    EXPECT_EQ(asked.size(), 20u);
    EXPECT_EQ(asked.front(), start);
    // Those that have few values have exactly the best one.
    EXPECT_EQ(Point(search.point().begin() + 1, search.point().end()), Point(peak.begin() + 1, peak.end()));
    EXPECT_GE(Hill(search.point()[0], peak[0]), Hill(2 * peak[0], peak[0]));
    for (size_t i = 1; i < asked.size(); ++i) {
      int changed = 0;
      for (size_t k = 0; k < start.size(); ++k) changed += asked[i][k] != asked[i - 1][k];
      EXPECT_LE(changed, i < asked.size() - Duel::kSamples ? 2 : 4) << "one leaves the best so far, one comes";
    }
  }
}

TEST(Search, WhatIsGivenStaysWhateverTheScores) {
  Beginning beginning;
  beginning.chunk_fixed = beginning.spin_fixed = true;
  Search search({.axes = AxesFor(beginning)});
  for (const Point& point : DriveAll(&search, [](const Point& at) { return Landscape(at, {kMebi, 25, 4096, 10}); })) {
    EXPECT_EQ(point[kChunk], 100);
    EXPECT_EQ(point[kSpin], 1000);
  }
  EXPECT_EQ(search.point()[kEager], 4096);

  beginning.fusion_fixed = beginning.eager_fixed = true;
  Search nothing({.axes = AxesFor(beginning)});
  EXPECT_EQ(DriveAll(&nothing, [](const Point&) { return 1.0; }).size(), 1u);
}

TEST(Search, AParameterThatIsFixedLateIsNotTried) {
  Search search({.axes = AxesFor({})});
  search.Fix(kFusion);
  const auto asked = DriveAll(&search, [](const Point& at) { return Landscape(at, {kMebi, 50, 4096, 10}); });
  EXPECT_EQ(asked.size(), 1u + 3 + 2 + 2 + 4);
  EXPECT_THAT(search.point(), ElementsAre(kStart, 50, 4096, 10));
}

TEST(Search, FewSamplesAreShared) {
  Search search({.axes = AxesFor({}), .max_samples = 10});
  std::vector<int> tried(kParameters);
  for (const Point& point : DriveAll(&search, [](const Point& at) {
         return Landscape(at, {kStart, 100, 65536, 1000});
       })) {
    for (size_t k = 0; k < kParameters; ++k) tried[k] += point[k] != search.start().point[k];
  }
  EXPECT_LE(search.samples(), 10);
  for (size_t k = 0; k < kParameters; ++k) EXPECT_GE(tried[k], 1) << k;
}

TEST(Search, IsNotWorseThanTheStartUnderNoiseInAllParameters) {
  int worse = 0;
  int better = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const Point peak{int64_t{1} << (18 + seed % 10), std::vector<int64_t>{25, 50, 100, 200}[random() % 4],
                     int64_t{4096} << (2 * (random() % 3)), std::vector<int64_t>{10, 100, 1000}[random() % 3]};
    Search search({.axes = AxesFor({})});
    DriveAll(&search, [&](const Point& point) {
      const double chance = static_cast<double>(random()) / static_cast<double>(std::mt19937::max()) - 0.5;
      return Landscape(point, peak) * (1 + 0.2 * chance);
    });
    const double gain = Landscape(search.point(), peak) / Landscape(search.start().point, peak);
    if (gain < 0.97) ++worse;
    if (gain > 1.2) ++better;
  }
  EXPECT_LE(worse, 4) << "of 200";
  EXPECT_GE(better, 120);
}

TEST(Axis, TheSmallestThatMayBeTriedIsKept) {
  Beginning small;
  small.eager_bytes = 4096;
  small.spin_us = 50;
  const auto axes = AxesFor(small);
  EXPECT_THAT(axes[kEager].first, ElementsAre(1024));
  EXPECT_THAT(axes[kSpin].first, ElementsAre(10));
  EXPECT_EQ(axes[kChunk].Neighbour(100, true), 200);
  EXPECT_EQ(axes[kChunk].Neighbour(100, false), 50);
  EXPECT_EQ(axes[kChunk].Neighbour(200, true), std::nullopt);
  EXPECT_EQ(axes[kFusion].Neighbour(8 * kMebi, true), 16 * kMebi);
  EXPECT_EQ(axes[kSpin].Neighbour(10, false), std::nullopt);
}

}  // namespace
}  // namespace hvd::tune
