// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/output/repeated_traces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace hvd::launch {
namespace {

using testing::ElementsAre;

constexpr const char* kTrace[] = {"Traceback (most recent call last):", "  File \"a.py\"", "ValueError: x"};

class RepeatedTracesTest : public testing::Test {
 protected:
  std::vector<std::string> Print(int rank, std::initializer_list<const char*> lines) {
    shown_.clear();
    for (const char* line : lines) traces_.Take(rank, line, &held_, [this](auto one) { shown_.emplace_back(one); });
    return shown_;
  }

  RepeatedTraces traces_;
  std::string held_;
  std::vector<std::string> shown_;
};

TEST_F(RepeatedTracesTest, OfAnotherRankAreOneLine) {
  EXPECT_THAT(Print(0, {"a", kTrace[0], kTrace[1], kTrace[2], "b"}),
              ElementsAre("a", kTrace[0], kTrace[1], kTrace[2], "b"));
  EXPECT_THAT(Print(1, {"a", kTrace[0], kTrace[1], kTrace[2], "b"}),
              ElementsAre("a", "ValueError: x (with the traceback of rank 0)", "b"));
  EXPECT_THAT(Print(1, {kTrace[0], kTrace[1], "ValueError: y"}), ElementsAre(kTrace[0], kTrace[1], "ValueError: y"));
  EXPECT_THAT(Print(0, {kTrace[0], kTrace[1], kTrace[2]}), ElementsAre(kTrace[0], kTrace[1], kTrace[2]));
}

TEST_F(RepeatedTracesTest, ThatAreNotCompleteAreShownAtTheEnd) {
  EXPECT_THAT(Print(0, {kTrace[0], kTrace[1]}), ElementsAre());
  RepeatedTraces::End(&held_, [this](auto one) { shown_.emplace_back(one); });
  EXPECT_THAT(shown_, ElementsAre(kTrace[0], kTrace[1]));
}

}  // namespace
}  // namespace hvd::launch
