// SPDX-License-Identifier: Apache-2.0
// HOROVOD_AUTOTUNE in whole engines: values change while the job works, results do not, and the search ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "hvd/hvd.h"
#include "hvd/tune/csv_log.h"
#include "tests/support/job.h"
#include "tests/support/request.h"
#include "tests/unit/trace/strict_json.h"

namespace hvd::test {
namespace {

using testing::HasSubstr;

// Variables of the environment, for as long as it lives.
class Variables {
 public:
  explicit Variables(std::map<std::string, std::string> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : values_) unsetenv(name.c_str());
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  const std::map<std::string, std::string> values_;
};

class AutotuneTest : public testing::Test {
 protected:
  void SetUp() override { path_ = testing::TempDir() + "hvd-autotune-" + std::to_string(getpid()) + ".csv"; }
  void TearDown() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + tune::CsvLog::kValues);
  }
  std::vector<std::string> Lines(const std::string& file_beside = "") const {
    std::ifstream file(path_ + file_beside);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  std::string path_;
};

// Every tensor of a step, together; whether each sum has the bits that it must have.
bool Step(hvd_context* ctx, int rank, int step) {
  constexpr int kCount = 12;
  constexpr int64_t kElements = 8 << 10;
  const auto value = [&](int of, int i) {
    return 0.1f * static_cast<float>(i % 97 + step) + 0.7f * static_cast<float>(of);
  };
  std::vector<std::vector<float>> tensors(kCount, std::vector<float>(kElements));
  std::vector<std::string> names;
  std::vector<hvd_request> requests;
  std::vector<hvd_handle> handles(kCount);
  for (int t = 0; t < kCount; ++t) names.push_back("gradient." + std::to_string(t));
  for (int t = 0; t < kCount; ++t) {
    for (int i = 0; i < kElements; ++i) tensors[t][i] = value(rank, i + t);
    const Request one(HVD_ALLREDUCE, names[t], {kElements}, tensors[t].data());
    requests.push_back(*static_cast<const hvd_request*>(one));
    requests.back().name = names[t].c_str();
    requests.back().shape = &kElements;
  }
  // Rank 1 is first, so that everything becomes ready together when rank 0 comes, and is fused.
  if (rank == 0) {
    EXPECT_EQ(hvd_run(ctx, Request(HVD_BARRIER, "rank 1 has submitted"), nullptr), HVD_OK);
  }
  EXPECT_EQ(hvd_submit_group(ctx, requests.data(), kCount, handles.data()), HVD_OK) << hvd_last_error();
  if (rank == 1) {
    EXPECT_EQ(hvd_run(ctx, Request(HVD_BARRIER, "rank 1 has submitted"), nullptr), HVD_OK);
  }
  bool right = true;
  for (int t = 0; t < kCount; ++t) {
    EXPECT_EQ(hvd_wait(ctx, handles[t], -1), HVD_OK) << hvd_last_error();
    EXPECT_EQ(hvd_release(ctx, handles[t]), HVD_OK);
    for (int i = 0; i < kElements; ++i) right = right && tensors[t][i] == value(0, i + t) + value(1, i + t);
  }
  return right;
}

std::string Cell(const std::string& row, int number) {
  std::istringstream text(row);
  std::string cell;
  for (int i = 0; i <= number; ++i) std::getline(text, cell, ',');
  return cell;
}

int64_t Threshold(hvd_context* ctx) {
  std::vector<char> text(1 << 16);
  uint64_t bytes = 0;
  EXPECT_EQ(hvd_counters_text(ctx, HVD_COUNTERS_JSON, text.data(), text.size(), &bytes), HVD_OK);
  const auto json = trace::JsonReader::Parse(text.data());
  return json ? static_cast<int64_t>((*json)["fusion"]["threshold_bytes"].number) : -1;
}

TEST_F(AutotuneTest, ValuesChangeResultsDoNotAndItEnds) {
  const Variables variables({{"HOROVOD_AUTOTUNE", "1"},
                             {"HOROVOD_AUTOTUNE_LOG", path_},
                             {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1"},
                             {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "1"},
                             {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "16"},
                             {"HOROVOD_SPIN_US", "200"},
                             {"HOROVOD_DISABLE_SHM", "1"}});
  std::set<int64_t> used;
  int64_t last = 0;
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    constexpr int kSteps = 1 + (1 + 16) * 5;
    for (int step = 0; step < kSteps + 3; ++step) {
      ASSERT_TRUE(Step(ctx, rank, step)) << "step " << step;
      if (rank == 0) used.insert(last = Threshold(ctx));
    }
  });
  EXPECT_GE(used.size(), 6u) << "the start, four far from it, and at least one that was guessed";
  EXPECT_TRUE(used.contains(1 << 20));
  const auto lines = Lines();
  ASSERT_GE(lines.size(), 1u + 8 + 1);
  ASSERT_LE(lines.size(), 1u + 16 + 1);
  EXPECT_EQ(lines[0],
            "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
            "tensor_fusion_threshold,score");
  EXPECT_THAT(lines[1], HasSubstr("0,0,0,1,0,128,"));
  EXPECT_THAT(lines[2], HasSubstr("0,0,0,1,0,1,"));
  // The job goes on with the last row.
  const double mebibytes = std::stod(lines.back().substr(std::string("0,0,0,1,0,").size()));
  EXPECT_NEAR(mebibytes * (1 << 20), static_cast<double>(last), 100);
  const auto values = Lines(tune::CsvLog::kValues);
  ASSERT_EQ(values.size(), lines.size());
  std::set<std::string> chunks;
  for (size_t i = 1; i < values.size(); ++i) {
    chunks.insert(Cell(values[i], 1));
    EXPECT_EQ(Cell(values[i], 2), Cell(values[1], 2)) << "nothing lies beside a mark in shared memory";
    EXPECT_EQ(Cell(values[i], 3), "200") << "it was given";
  }
  EXPECT_EQ(chunks, (std::set<std::string>{"100", "200", "25", "50"}));
}

// On one host nothing is fused, but there is the rest; and it goes on.
TEST_F(AutotuneTest, TunesInSharedMemoryAndGoesOn) {
  const Variables variables({{"HOROVOD_AUTOTUNE", "1"},
                             {"HOROVOD_AUTOTUNE_LOG", path_},
                             {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "0"},
                             {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "1"},
                             {"HOROVOD_AUTOTUNE_CONTINUE", "1"},
                             {"HOROVOD_FUSION_THRESHOLD", "1048576"}});
  RunThreads(3, [&](int rank, hvd_context* ctx) {
    constexpr int kSteps = 1 + 12 * 5 + 4;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float> large(100'000, static_cast<float>(rank + step));
      std::vector<float> small(4000, static_cast<float>(rank * step));
      ASSERT_EQ(Sum(ctx, "large", large.data(), large.size()), HVD_OK) << hvd_last_error();
      ASSERT_EQ(Sum(ctx, "small", small.data(), small.size()), HVD_OK) << hvd_last_error();
      ASSERT_EQ(large, std::vector<float>(large.size(), static_cast<float>(3 * step + 3)));
      ASSERT_EQ(small, std::vector<float>(small.size(), static_cast<float>(3 * step)));
    }
  });
  const auto values = Lines(tune::CsvLog::kValues);
  std::set<std::string> chunks;
  std::set<std::string> eagers;
  for (size_t i = 1; i < values.size(); ++i) {
    chunks.insert(Cell(values[i], 1));
    eagers.insert(Cell(values[i], 2));
  }
  EXPECT_EQ(chunks, (std::set<std::string>{"100", "200", "25", "50"}));
  EXPECT_EQ(eagers, (std::set<std::string>{"65536", "16384", "4096"}));
}

TEST_F(AutotuneTest, WhatIsGivenIsHeld) {
  const Variables variables({{"HOROVOD_AUTOTUNE", "1"},
                             {"HOROVOD_AUTOTUNE_LOG", path_},
                             {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "0"},
                             {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "1"},
                             {"HOROVOD_CHUNK_BYTES", "32768"},
                             {"HOROVOD_EAGER_LIMIT", "8192"},
                             {"HOROVOD_SPIN_US", "50"},
                             {"HOROVOD_FUSION_THRESHOLD", "2097152"}});
  RunThreads(2, [&](int rank, hvd_context* ctx) {
    for (int step = 0; step < 10; ++step) {
      ASSERT_TRUE(Step(ctx, rank, step));
      EXPECT_EQ(Threshold(ctx), 2 << 20);
    }
  });
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], HasSubstr("0,0,0,1,0,2,"));
  EXPECT_EQ(lines[1], lines[2]);
}

TEST_F(AutotuneTest, AnUnwritableLogIsAnErrorOnAllRanks) {
  const Variables variables({{"HOROVOD_AUTOTUNE", "1"}, {"HOROVOD_AUTOTUNE_LOG", "/nonexistent/folder/a.csv"}});
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      hvd_init_options options;
      hvd_init_options_default(&options);
      options.rank = rank;
      options.size = 2;
      options.rendezvous = "memory:autotune-log";
      hvd_context* ctx = nullptr;
      EXPECT_NE(hvd_init(&options, &ctx), HVD_OK);
      errors[rank] = hvd_last_error();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("HOROVOD_AUTOTUNE_LOG=/nonexistent/folder/a.csv cannot be written: No such file"));
  }
}

}  // namespace
}  // namespace hvd::test
