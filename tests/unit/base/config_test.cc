// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>

namespace hvd {
namespace {

using Variables = std::map<std::string, std::string>;

Result<Config> Read(const Variables& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  auto config = ConfigFromEnvironment();
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return config;
}

TEST(Config, LaunchersPlaceIsTaken) {
  const auto config = Read({{"HOROVOD_SIZE", "8"},
                            {"HOROVOD_LOCAL_RANK", "1"},
                            {"HOROVOD_LOCAL_SIZE", "4"},
                            {"HOROVOD_CROSS_RANK", "0"},
                            {"HOROVOD_CROSS_SIZE", "2"}});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->local_rank, 1);
  EXPECT_EQ(config->local_size, 4);
  EXPECT_EQ(config->cross_rank, 0);
  EXPECT_EQ(config->cross_size, 2);
}

TEST(Config, ImpossiblePlacesNameVariableAndValue) {
  const std::vector<std::pair<Variables, std::string>> cases{
      {{{"HOROVOD_LOCAL_RANK", "-1"}, {"HOROVOD_LOCAL_SIZE", "2"}}, "HOROVOD_LOCAL_RANK=-1 is not valid"},
      {{{"HOROVOD_LOCAL_RANK", "two"}, {"HOROVOD_LOCAL_SIZE", "2"}}, "HOROVOD_LOCAL_RANK=two is not valid"},
      {{{"HOROVOD_LOCAL_RANK", "2"}, {"HOROVOD_LOCAL_SIZE", "2"}},
       "HOROVOD_LOCAL_RANK=2 is not below HOROVOD_LOCAL_SIZE=2"},
      {{{"HOROVOD_LOCAL_RANK", "1"}}, "HOROVOD_LOCAL_RANK=1 without HOROVOD_LOCAL_SIZE"},
      {{{"HOROVOD_LOCAL_SIZE", "2"}}, "HOROVOD_LOCAL_SIZE=2 without HOROVOD_LOCAL_RANK"},
      {{{"HOROVOD_CROSS_RANK", "3"}, {"HOROVOD_CROSS_SIZE", "1"}},
       "HOROVOD_CROSS_RANK=3 is not below HOROVOD_CROSS_SIZE=1"},
      {{{"HOROVOD_CROSS_SIZE", "0"}}, "HOROVOD_CROSS_SIZE=0 is not valid"},
      {{{"HOROVOD_SIZE", "2"}, {"HOROVOD_LOCAL_RANK", "0"}, {"HOROVOD_LOCAL_SIZE", "3"}},
       "HOROVOD_LOCAL_SIZE=3 is above HOROVOD_SIZE=2"},
  };
  for (const auto& [variables, text] : cases) {
    const auto config = Read(variables);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().code, Code::kInvalidArgument);
    EXPECT_EQ(config.error().message.find(text), 0u) << config.error().message;
  }
}

TEST(Config, AutotuningIsOffAndItsValuesAreChecked) {
  const auto plain = Read({});
  ASSERT_TRUE(plain);
  EXPECT_FALSE(plain->autotune);
  EXPECT_FALSE(plain->autotune_continue);
  EXPECT_FALSE(plain->chunk_bytes_given);
  EXPECT_FALSE(plain->fusion_threshold_given);
  EXPECT_TRUE(Read({{"HOROVOD_FUSION_THRESHOLD", "134217728"}})->fusion_threshold_given);
  const std::vector<std::pair<Variables, std::string>> cases{
      {{{"HOROVOD_AUTOTUNE", "maybe"}}, "HOROVOD_AUTOTUNE=maybe is not valid: give 0 or 1, or unset it"},
      {{{"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "-1"}},
       "HOROVOD_AUTOTUNE_WARMUP_SAMPLES=-1 is not valid: give a whole number of at least 0, or unset it"},
      {{{"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "0"}},
       "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=0 is not valid: give a whole number of at least 1, or unset it"},
      {{{"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "x"}},
       "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES=x is not valid: give a whole number of at least 0, or unset it"},
      {{{"HOROVOD_CHUNK_BYTES", "67108865"}},
       "HOROVOD_CHUNK_BYTES=67108865 is not valid: give a whole number of at least 4096 and at most 67108864, or unset "
       "it"},
      {{{"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "1.5"}},
       "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE=1.5 is not valid: give a number of at least 0 and at most 1, or unset "
       "it"},
  };
  for (const auto& [variables, text] : cases) {
    const auto config = Read(variables);
    ASSERT_FALSE(config) << text;
    EXPECT_EQ(config.error().message, text);
  }
}

}  // namespace
}  // namespace hvd
