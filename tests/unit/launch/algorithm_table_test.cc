// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/cli/algorithm_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace hvd::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Result<std::string> Show(const List& arguments, const Environment& environment = {}) {
  const auto options = Parse(arguments, ReadFile);
  if (!options) return Fail(options.error());
  return AlgorithmTable(*options, environment, ReadFile);
}

TEST(Algorithms, OfAJobAreThoseOfItsHostsAndVariables) {
  EXPECT_THAT(*Show({"--algorithms"}), AllOf(HasSubstr("shm:"), HasSubstr("network:"), HasSubstr("mixed:")));
  EXPECT_THAT(*Show({"--algorithms", "-np", "9"}), AllOf(HasSubstr("9 ranks on 1 host."), HasSubstr("..16K   inline")));
  EXPECT_THAT(*Show({"--algorithms", "-np", "2", "-x", "HOROVOD_EAGER_LIMIT=1024"}), HasSubstr("..1K    inline"));
  Environment environment;
  environment.Set("HOROVOD_DISABLE_SHM", "1");
  EXPECT_THAT(*Show({"--algorithms", "-np", "2"}, environment), AllOf(HasSubstr("one_step"), Not(HasSubstr("inline"))));
  environment.Set("HOROVOD_ALGORITHMS", "allreduce:network:one_step=none");
  EXPECT_THAT(*Show({"--algorithms", "-np", "2"}, environment), Not(HasSubstr("one_step")));
}

TEST(Algorithms, AreJsonIfAskedFor) {
  const auto job =
      nlohmann::json::parse(*Show({"--algorithms", "--json", "-np", "3", "-H", "localhost:2,b.invalid:1"}));
  EXPECT_EQ(job["hosts"], nlohmann::json({2, 1}));
  EXPECT_EQ(job["scope"], "mixed");
  EXPECT_EQ(job["lines"][0]["algorithm"], "hierarchical_reduce");
  EXPECT_EQ(job["lines"][0]["least_bytes"], 65537);
  EXPECT_EQ(job["lines"][0]["most_bytes"], nullptr);
  EXPECT_EQ(job["lines"][0]["chunk"], 512 << 10);
  const auto all = nlohmann::json::parse(*Show({"--algorithms", "--json"}));
  EXPECT_EQ(all["lines"][0]["scope"], "shm");
  EXPECT_EQ(all["lines"][0]["most_bytes"], 32);
}

TEST(Algorithms, WhatTheLibraryWouldRefuseIsRefused) {
  Environment environment;
  environment.Set("HOROVOD_ALGORITHMS", "allreduce");
  EXPECT_THAT(Show({"--algorithms"}, environment).error().message, HasSubstr("\"allreduce\" is no entry"));
  environment.Set("HOROVOD_CHUNK_BYTES", "many");
  EXPECT_THAT(Show({"--algorithms"}, environment).error().message, HasSubstr("HOROVOD_CHUNK_BYTES=many is not valid"));
}

}  // namespace
}  // namespace hvd::launch
