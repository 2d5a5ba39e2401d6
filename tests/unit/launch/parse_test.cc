// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/cli/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hvd/launch/cli/flags.h"

namespace hvd::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

Result<Options> ParseWith(const std::string& config, const List& arguments) {
  return Parse(arguments, [&](const std::string& path) -> Result<std::string> {
    if (path == "job.yaml") return config;
    return Fail(Code::kNotFound, "{}: No such file or directory", path);
  });
}

Result<Options> ParseLine(const List& arguments) { return ParseWith("", arguments); }

std::string ErrorOf(const List& arguments) {
  const auto options = ParseLine(arguments);
  return options ? "accepted" : options.error().message;
}

std::string ErrorOfConfig(const std::string& config) {
  const auto options = ParseWith(config, {"-np", "1", "--config-file", "job.yaml", "true"});
  return options ? "accepted" : options.error().message;
}

TEST(Parse, TheCommandBeginsWithTheFirstWordThatIsNoFlag) {
  const auto options = ParseLine({"-np", "2", "-H", "localhost:2", "python", "train.py", "-np", "7"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->num_proc, 2);
  EXPECT_EQ(options->hosts, "localhost:2");
  EXPECT_THAT(options->command, ElementsAre("python", "train.py", "-np", "7"));
}

TEST(Parse, EveryNameOfAFlagMeansTheSame) {
  for (const char* name : {"-np", "--num-proc", "-n"}) EXPECT_EQ(ParseLine({name, "3", "true"})->num_proc, 3) << name;
  for (const char* name : {"-H", "--hosts", "-hosts"}) {
    EXPECT_EQ(ParseLine({"-np", "1", name, "a:1", "true"})->hosts, "a:1") << name;
  }
  EXPECT_EQ(ParseLine({"--num-proc=4", "--", "-odd-program"})->command, List{"-odd-program"});
}

TEST(Parse, QuestionsNeedNoJob) {
  for (const char* name : {"-h", "--help", "-v", "--version", "-cb", "--check-build"}) {
    EXPECT_TRUE(ParseLine({name})) << name;
  }
}

TEST(Parse, ErrorsNameFlagValueAndExpectation) {
  EXPECT_EQ(ErrorOf({"-np", "two", "true"}), "-np two: expected a whole number from 1 to 65536");
  EXPECT_EQ(ErrorOf({"-np", "0", "true"}), "-np 0: expected a whole number from 1 to 65536");
  EXPECT_EQ(ErrorOf({"-np"}), "-np: needs a value, -np N");
  EXPECT_EQ(ErrorOf({"--colr", "always"}), "unknown flag --colr; did you mean --color?");
  EXPECT_EQ(ErrorOf({"--verbos"}), "unknown flag --verbos; did you mean --verbose?");
  EXPECT_EQ(ErrorOf({"--zzz"}), "unknown flag --zzz");
  EXPECT_EQ(ErrorOf({"-np", "1", "--color", "alway", "true"}),
            "--color alway: expected one of auto always never; did you mean always?");
  EXPECT_EQ(ErrorOf({"-np", "1", "--verbose=1", "true"}), "--verbose=1: takes no value");
  EXPECT_EQ(ErrorOf({"-np", "1", "--cache-capacity", "-1", "true"}),
            "--cache-capacity -1: expected a whole number of at least 0");
  EXPECT_EQ(ErrorOf({"-np", "1", "--fusion-threshold-mb", "-1", "true"}),
            "--fusion-threshold-mb -1: expected a whole number from 0 to 1048576");
  EXPECT_EQ(ErrorOf({"-np", "1", "--output-filename", "", "true"}), "--output-filename '': expected DIR, not nothing");
  EXPECT_EQ(ErrorOf({"-np", "1", "-x", "", "true"}), "-x '': expected NAME[=VALUE], not nothing");
  EXPECT_EQ(ErrorOf({"-np", "1", "--prefix", "", "true"}), "accepted");
  EXPECT_THAT(ErrorOf({"true"}), HasSubstr("-np is missing"));
  EXPECT_THAT(ErrorOf({"docter"}), HasSubstr("-np is missing"));
  EXPECT_THAT(ErrorOf({"docter"}), HasSubstr("; did you mean doctor?"));
  EXPECT_THAT(ErrorOf({"true", "-np", "2"}), HasSubstr("flags of horovodrun come before the command"));
  EXPECT_EQ(ErrorOf({"-np", "2"}), "the command is missing: horovodrun -np 2 python train.py");
  EXPECT_EQ(ErrorOf({"-np", "2", "--only-rank", "2", "true"}), "--only-rank 2: expected a rank below -np 2");
  EXPECT_EQ(ErrorOf({"-np", "2", "-H", "a", "--hostfile", "b", "true"}),
            "-H and --hostfile: give one of them, not both");
  EXPECT_EQ(ErrorOf({"-np", "2", "--config-file", "no.yaml", "true"}),
            "--config-file no.yaml: No such file or directory");
}

TEST(Parse, WhatIsNotBuiltIsRefused) {
  EXPECT_THAT(ErrorOf({"-np", "2", "--mpi", "--gloo", "true"}), HasSubstr("--gloo and --mpi: give one"));
  EXPECT_THAT(ErrorOf({"-np", "2", "--mpi-args", "-v", "true"}), HasSubstr("--mpi-args: needs --mpi"));
  EXPECT_THAT(ErrorOf({"doctor"}), HasSubstr("doctor: give it as the first word"));
  EXPECT_THAT(ErrorOf({"--blacklist-cooldown-range", "1", "2"}), HasSubstr("hosts are never excluded"));
}

TEST(Parse, FlagsOfElasticJobsAreCheckedTogether) {
  EXPECT_EQ(ErrorOf({"-np", "2", "--min-np", "3", "true"}),
            "--min-np 3: is more than -np 2; the job would begin with too few ranks");
  EXPECT_EQ(ErrorOf({"-np", "4", "--min-np", "2", "--max-np", "3", "true"}), "--max-np 3: is less than -np 4");
  EXPECT_THAT(ErrorOf({"-np", "4", "--max-np", "8", "true"}),
              HasSubstr("--max-np: is for elastic jobs: give --min-np"));
  EXPECT_THAT(ErrorOf({"-np", "2", "--reset-limit", "1", "true"}), HasSubstr("--reset-limit: is for elastic jobs"));
  EXPECT_THAT(ErrorOf({"-np", "2", "--min-np", "1", "--mpi", "true"}), HasSubstr("mpirun cannot start elastic jobs"));
  EXPECT_THAT(ErrorOf({"-np", "2", "-H", "a:2", "--host-discovery-script", "x", "true"}),
              HasSubstr("--host-discovery-script and -H: give one of them"));
  EXPECT_THAT(ErrorOf({"-np", "2", "--min-np", "0", "true"}), HasSubstr("--min-np 0"));
}

TEST(Parse, WhatHasNoEffectIsSaid) {
  const auto options = ParseLine({"-np", "2", "--cycle-time-ms", "3.5", "--no-hierarchical-allreduce", "true"});
  ASSERT_TRUE(options);
  EXPECT_THAT(options->notes, ElementsAre(HasSubstr("--cycle-time-ms has no effect")));
}

TEST(Parse, OptionsBecomeVariables) {
  const auto options =
      ParseLine({"-np", "2", "--fusion-threshold-mb", "32", "--no-stall-check", "--log-without-timestamp",
                 "--log-level", "INFO", "--timeline-filename", "t.json", "--start-timeout", "2.5", "true"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_THAT(Exports(*options),
              UnorderedElementsAre(Pair("HOROVOD_FUSION_THRESHOLD", "33554432"), Pair("HOROVOD_LOG_LEVEL", "info"),
                                   Pair("HOROVOD_STALL_CHECK_DISABLE", "1"), Pair("HOROVOD_LOG_HIDE_TIME", "1"),
                                   Pair("HOROVOD_TIMELINE", "t.json"), Pair("HOROVOD_START_TIMEOUT", "2.5")));
}

TEST(Parse, AutotuningsVariablesNeedIt) {
  const std::vector<std::string> details = {"-np",
                                            "2",
                                            "--autotune-log-file",
                                            "a.csv",
                                            "--autotune-warmup-samples",
                                            "1",
                                            "--autotune-steps-per-sample",
                                            "2",
                                            "--autotune-bayes-opt-max-samples",
                                            "7",
                                            "--autotune-gaussian-process-noise",
                                            "0.5",
                                            "--autotune-continue"};
  const auto with = [&](const std::string& flag) {
    std::vector<std::string> words = details;
    words.push_back(flag);
    words.push_back("true");
    const auto options = ParseLine(words);
    EXPECT_TRUE(options) << options.error().message;
    return Exports(*options);
  };
  EXPECT_THAT(with("--autotune"),
              UnorderedElementsAre(
                  Pair("HOROVOD_AUTOTUNE", "1"), Pair("HOROVOD_AUTOTUNE_LOG", "a.csv"),
                  Pair("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1"), Pair("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "2"),
                  Pair("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "7"),
                  Pair("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.5"), Pair("HOROVOD_AUTOTUNE_CONTINUE", "1")));
  EXPECT_THAT(with("--no-autotune"), UnorderedElementsAre(Pair("HOROVOD_AUTOTUNE", "0")));
  EXPECT_THAT(with("--verbose"), UnorderedElementsAre());
}

TEST(Config, EveryKeyOfTheFileIsKnown) {
  const auto options = ParseWith(
      "controller: gloo\n"
      "params:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 5\n  cache_capacity: 2048\n"
      "  hierarchical_allreduce: false\n  hierarchical_allgather: no\n  torus_allreduce: off\n"
      "autotune:\n  enabled: false\n  log_file: a.csv\n  warmup_samples: 5\n  steps_per_sample: 20\n"
      "  bayes_opt_max_samples: 10\n  gaussian_process_noise: 0.5\n  continue: true\n"
      "timeline:\n  filename: t.json\n  mark_cycles: true\n"
      "stall_check:\n  enabled: true\n  warning_time_seconds: 120\n  shutdown_time_seconds: 240\n"
      "library_options:\n  mpi_threads_disable: false\n  num_nccl_streams: 2\n  gloo_timeout_seconds: 60\n"
      "logging:\n  level: warning\n  with_timestamp: true\n",
      {"-np", "1", "--config-file", "job.yaml", "--cache-capacity", "7", "true"});
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->fusion_threshold_mb, 32);
  EXPECT_EQ(options->cache_capacity, 7) << "the flag overrides the file";
  EXPECT_EQ(options->timeline_mark_cycles, true);
  EXPECT_EQ(options->stall_warning_seconds, 120);
  EXPECT_EQ(options->log_with_timestamp, true);
}

TEST(Config, ErrorsNameFileLineAndKey) {
  EXPECT_EQ(ErrorOfConfig("params:\n  fusion_treshold_mb: 3\n"),
            "job.yaml:2: unknown key params.fusion_treshold_mb; did you mean params.fusion_threshold_mb?");
  EXPECT_EQ(ErrorOfConfig("parms:\n  cache_capacity: 3\n"), "job.yaml:1: unknown key parms; did you mean params?");
  EXPECT_EQ(ErrorOfConfig("params:\n  cache_capacity: lots\n"),
            "job.yaml:2: params.cache_capacity: lots: expected a whole number of at least 0");
  EXPECT_EQ(ErrorOfConfig("params:\n  cache_capacity: [1]\n"),
            "job.yaml:2: params.cache_capacity: expected a single value");
  EXPECT_EQ(ErrorOfConfig("params:\n  cache_capacity: 1\n  cache_capacity: 2\n"),
            "job.yaml:3: params.cache_capacity stands here twice");
  EXPECT_THAT(ErrorOfConfig("params: {a: [}\n"), HasSubstr("not valid YAML"));
  EXPECT_EQ(ErrorOfConfig("- a\n"), "job.yaml:1: expected keys such as 'params:'");
  EXPECT_THAT(ErrorOfConfig("autotune: {gaussian_process_noise: 2}\n"), HasSubstr("a number from 0 to 1"));
  EXPECT_THAT(ErrorOfConfig("autotune: {steps_per_sample: 0}\n"), HasSubstr("a whole number of at least 1"));
  EXPECT_THAT(ErrorOfConfig("controller: jsrun\n"), HasSubstr("controller: jsrun is not in this release"));
  EXPECT_EQ(ErrorOfConfig(""), "accepted");
}

TEST(Help, ListsWhatIsBuiltAndNothingElse) {
  const std::string text = HelpText();
  EXPECT_THAT(text, HasSubstr("-np, --num-proc, -n N"));
  EXPECT_THAT(text, HasSubstr("--grace-period SECONDS"));
  EXPECT_THAT(text, HasSubstr("--min-np, --min-num-proc N"));
  EXPECT_THAT(text, testing::Not(HasSubstr("--jsrun")));
}

}  // namespace
}  // namespace hvd::launch
