// SPDX-License-Identifier: Apache-2.0
// Windows, samples and the log, with a clock of the test's own.
#include "hvd/tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "hvd/base/log.h"

namespace hvd::tune {
namespace {

using std::chrono::microseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kHeader =
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score";

class TunerTest : public testing::Test {
 protected:
  void SetUp() override { path_ = testing::TempDir() + "hvd-tuner-" + std::to_string(getpid()) + ".csv"; }
  void TearDown() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + CsvLog::kValues);
  }

  std::unique_ptr<Tuner> Make(const TunerOptions& options) {
    auto log = CsvLog::Open(path_);
    EXPECT_TRUE(log) << log.error().message;
    return std::make_unique<Tuner>(options, std::move(*log));
  }
  // A step of two operations of 100 bytes each, that takes so long in all.
  void Step(Tuner* tuner, double us) {
    now_ += Seconds(us / 2e6);
    tuner->OnReduced("a", 100, now_, ++batches_);
    now_ += Seconds(us / 2e6);
    tuner->OnReduced("b", 100, now_, batches_);
  }
  std::vector<std::string> Lines(const std::string& file_beside = "") const {
    std::ifstream file(path_ + file_beside);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  std::string path_;
  Time now_{};
  uint64_t batches_ = 0;
};

// Tunes the threshold alone.
TunerOptions Options(int steps, int warmups, int samples) {
  Beginning beginning;
  beginning.chunk_fixed = beginning.eager_fixed = beginning.spin_fixed = true;
  TunerOptions options;
  options.search.axes = AxesFor(beginning);
  options.chunk_variables = [](int64_t percent) { return "CHUNKS=" + std::to_string(percent); };
  options.search.max_samples = samples;
  options.warmup_samples = warmups;
  options.steps_per_sample = steps;
  return options;
}

int64_t Threshold(const Tuner& tuner) { return tuner.point()[kFusion]; }

// The cells of a row.
std::vector<std::string> Cells(const std::string& row) {
  std::istringstream text(row);
  std::vector<std::string> cells;
  for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
  return cells;
}

TEST_F(TunerTest, ASampleIsTheMedianOfFiveWindows) {
  auto tuner = Make(Options(2, 1, 5));
  tuner->OnReduced("b", 100, now_, 0);                   // time runs from here; a window ends with every second "b"
  for (int i = 0; i < 10; ++i) Step(tuner.get(), 1000);  // warm-up
  EXPECT_THAT(Lines(), ElementsAre(kHeader));
  for (const double us : {10., 1000., 20., 30., 5000.}) {
    for (int i = 0; i < 2; ++i) Step(tuner.get(), us);
  }
  EXPECT_TRUE(tuner->finished());
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], HasSubstr("0,0,0,1,0,128,"));
  EXPECT_EQ(lines[1], lines[2]) << "the last row is the best";
  const double score = std::stod(Cells(lines[1])[6]);
  EXPECT_NEAR(score, 400 / 60.0, 0.01) << "two steps of 200 bytes and 30 us";
}

TEST_F(TunerTest, ChangesTheThresholdAndEnds) {
  auto tuner = Make(Options(1, 0, 20));
  std::vector<int64_t> used;
  for (int i = 0; i < 1000 && !tuner->finished(); ++i) {
    used.push_back(Threshold(*tuner));
    Step(tuner.get(), Threshold(*tuner) == 8 << 20 ? 100 : 200);
  }
  ASSERT_TRUE(tuner->finished());
  EXPECT_EQ(Threshold(*tuner), 8 << 20);
  std::sort(used.begin(), used.end());
  EXPECT_GT(std::unique(used.begin(), used.end()) - used.begin(), 5);
  const auto lines = Lines();
  EXPECT_EQ(lines.size(), 1u + 20 + 1);
  EXPECT_THAT(lines.back(), HasSubstr("0,0,0,1,0,8,"));
}

TEST_F(TunerTest, EndsAtOnceWhereNothingIsFused) {
  auto tuner = Make(Options(1, 0, 20));
  for (int i = 0; i <= 5; ++i) {
    EXPECT_FALSE(tuner->finished());
    tuner->OnReduced("a", 100, now_ += microseconds(10), 3);
  }
  EXPECT_TRUE(tuner->finished());
  EXPECT_EQ(Threshold(*tuner), 128 << 20);
}

TEST_F(TunerTest, AJobThatEndsEarlyLeavesTheBestSoFar) {
  auto tuner = Make(Options(1, 0, 20));
  for (int i = 0; i < 13; ++i) Step(tuner.get(), Threshold(*tuner) == 1 << 20 ? 50 : 100);
  EXPECT_FALSE(tuner->finished());
  EXPECT_EQ(Lines().size(), 3u);
  tuner.reset();
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[3], lines[2]);
  EXPECT_THAT(lines[3], HasSubstr("0,0,0,1,0,1,"));
}

TEST_F(TunerTest, TunesTheRestWhereNothingIsFused) {
  TunerOptions options = Options(1, 0, 20);
  options.search.axes = AxesFor({});
  auto tuner = Make(options);
  for (int i = 0; i < 1000 && !tuner->finished(); ++i) {
    EXPECT_EQ(Threshold(*tuner), 128 << 20);
    now_ += microseconds(tuner->point()[kEager] == 16 << 10 ? 50 : 100);
    tuner->OnReduced("a", 100, now_, 0);
  }
  ASSERT_TRUE(tuner->finished());
  EXPECT_THAT(tuner->point(), ElementsAre(128 << 20, 100, 16 << 10, 1000));
  EXPECT_EQ(Lines().size(), 1u + 1 + 3 + 2 + 2 + 4 + 1);
}

TEST_F(TunerTest, SaysWhatItFoundAndHowToKeepIt) {
  TunerOptions options = Options(1, 0, 20);
  options.search.axes = AxesFor({});
  auto tuner = Make(options);
  log::SetLevel("info");
  testing::internal::CaptureStdout();
  for (int i = 0; i < 1000 && !tuner->finished(); ++i) {
    const Point& at = tuner->point();
    Step(tuner.get(), 100 - 20 * (at[kFusion] == 8 << 20) - 10 * (at[kChunk] == 50) - 15 * (at[kSpin] == 100));
  }
  const std::string said = testing::internal::GetCapturedStdout();
  log::SetLevel("warning");
  EXPECT_THAT(said,
              HasSubstr("Autotune ended after 20 samples: with a fusion threshold of 8 MiB, chunks of 50 % and 100 "
                        "us of spinning"));
  EXPECT_THAT(said,
              HasSubstr("; with what the job began with, a fusion threshold of 128 MiB, chunks of 100 % and 1000 us "
                        "of spinning, only 2 (+82 %). The job goes on with it. For the next one set "
                        "HOROVOD_FUSION_THRESHOLD=8388608 CHUNKS=50 HOROVOD_SPIN_US=100 and leave autotuning off."));
  EXPECT_THAT(Cells(Lines().back()), ElementsAre("0", "0", "0", "1", "0", "8", testing::_));
  const auto values = Lines(CsvLog::kValues);
  EXPECT_EQ(values[0], "tensor_fusion_threshold,chunk_percent,eager_limit,spin_us,score");
  EXPECT_EQ(values.size(), Lines().size());
  EXPECT_THAT(Cells(values.back()), ElementsAre("8", "50", "65536", "100", Cells(Lines().back())[6]));
}

TEST_F(TunerTest, GoesOnSlowlyIfAsked) {
  TunerOptions options = Options(1, 0, 20);
  options.search.axes = AxesFor({});
  options.continues = true;
  options.rest_samples = 100;
  auto tuner = Make(options);
  // First nothing is better than the start; later, small chunks are.
  bool small_chunks = false;
  uint64_t steps = 0;
  uint64_t elsewhere = 0;
  const auto step = [&] {
    ++steps;
    elsewhere += tuner->point() != tuner->start();
    Step(tuner.get(), small_chunks && tuner->point()[kChunk] == 50 ? 80 : 100);
  };
  for (int i = 0; i < 200; ++i) step();  // the search, which is over after 100
  EXPECT_FALSE(tuner->finished());
  EXPECT_EQ(tuner->point(), tuner->start());
  steps = elsewhere = 0;
  for (int i = 0; i < 20'000; ++i) step();
  EXPECT_GT(elsewhere, 0u);
  EXPECT_LT(elsewhere * 100, steps * 2) << "rests a fifth as long as a job does";
  EXPECT_EQ(tuner->point(), tuner->start());
  small_chunks = true;
  for (int i = 0; i < 60'000 && tuner->point()[kChunk] != 50; ++i) step();
  for (int i = 0; i < 20'000; ++i) step();
  auto at = tuner->start();
  at[kChunk] = 50;
  EXPECT_EQ(tuner->point(), at);
  EXPECT_EQ(Cells(Lines(CsvLog::kValues).back())[1], "50");
}

TEST_F(TunerTest, NamesThatNeverComeAgainDoNotFillTheMemory) {
  auto tuner = Make(Options(2, 0, 20));
  for (int i = 0; i < 200000; ++i) tuner->OnReduced(std::to_string(i), 1, now_ += microseconds(1), 0);
  EXPECT_FALSE(tuner->finished());
  EXPECT_THAT(Lines(), ElementsAre(kHeader));
}

TEST(CsvLog, AFileThatCannotBeWrittenIsNamed) {
  const auto missing = CsvLog::Open("/nonexistent/folder/log.csv");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message,
            "HOROVOD_AUTOTUNE_LOG=/nonexistent/folder/log.csv cannot be written: No such file or directory");
  const auto full = CsvLog::Open("/dev/full");
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, HasSubstr("No space left on device"));
  EXPECT_TRUE(CsvLog::Open(""));
}

}  // namespace
}  // namespace hvd::tune
