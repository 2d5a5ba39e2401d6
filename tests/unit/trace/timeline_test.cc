// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/timeline.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>

#include "tests/unit/trace/strict_json.h"

namespace hvd::trace {
namespace {

using namespace std::chrono_literals;

Time Now() { return std::chrono::steady_clock::now(); }

class TimelineTest : public ::testing::Test {
 protected:
  TimelineOptions Options() const { return {.path = path_, .rank = 1, .size = 2, .host = "node7"}; }
  std::vector<Json> Read(const std::string& path) const {
    const auto value = JsonReader::Parse(ReadFile(path));
    EXPECT_TRUE(value) << path;
    return value ? value->items : std::vector<Json>{};
  }
  std::vector<Json> Events() const { return Read(path_); }
  static std::vector<Json> Named(const std::vector<Json>& events, const std::string& name) {
    std::vector<Json> found;
    for (const Json& event : events) {
      if (event["name"].text == name) found.push_back(event);
    }
    return found;
  }
  // Every B is closed by an E of the same lane, and nothing else is open.
  static void ExpectBalanced(const std::vector<Json>& events) {
    std::map<std::pair<double, double>, int> open;
    for (const Json& event : events) {
      const auto lane = std::make_pair(event["pid"].number, event["tid"].number);
      if (event["ph"].text == "B") ++open[lane];
      if (event["ph"].text == "E") {
        EXPECT_GE(--open[lane], 0);
      }
    }
    for (const auto& [lane, count] : open) EXPECT_EQ(count, 0) << lane.first;
  }

  TempFolder folder_;
  const std::string path_ = folder_.File("t.json");
};

TEST_F(TimelineTest, BeginsWithWhoAndTheClocks) {
  Timeline timeline;
  ASSERT_TRUE(timeline.Start(Options()));
  const auto events = Events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["name"].text, "process_name");
  EXPECT_EQ(events[0]["pid"].number, 0);
  EXPECT_GT(events[0]["args"]["start_time_since_epoch_in_micros"].number, 1e15);
  EXPECT_EQ(events[1]["name"].text, "process_sort_index");
  EXPECT_EQ(events[2]["name"].text, "hvd_clock");
  EXPECT_EQ(events[2]["args"]["rank"].number, 1);
  EXPECT_EQ(events[2]["args"]["host"].text, "node7");
  EXPECT_GT(events[2]["args"]["monotonic_base_ns"].number, 0);
  EXPECT_NEAR(events[2]["args"]["wall_base_ns"].number / 1000,
              events[0]["args"]["start_time_since_epoch_in_micros"].number, 2000);
}

TEST_F(TimelineTest, LinksAreFollowedAndStay) {
  const std::string there = folder_.File("there.json");
  ASSERT_EQ(::symlink("second", path_.c_str()), 0);
  ASSERT_EQ(::symlink(there.c_str(), folder_.File("second").c_str()), 0);
  TimelineOptions options = Options();
  options.max_bytes = 128 << 10;  // rotates
  Timeline timeline;
  ASSERT_TRUE(timeline.Start(options));
  for (int i = 0; i < 2000; ++i) timeline.Negotiated(0, "a", OpKind::kAllreduce, Now(), Now());
  timeline.Stop();
  std::array<char, 100> target{};
  EXPECT_GT(::readlink(path_.c_str(), target.data(), target.size()), 0);
  EXPECT_GE(Read(there).size(), 3u);
  EXPECT_GE(Read(there + ".1").size(), 3u);
  ::unlink(path_.c_str());
  ASSERT_EQ(::symlink("t.json", path_.c_str()), 0);
  const Status started = timeline.Start(Options());
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message.find("Too many levels of symbolic links"), std::string::npos);
}

TEST_F(TimelineTest, AnOperationFromReadyToDone) {
  Timeline timeline;
  ASSERT_TRUE(timeline.Start(Options()));
  const Time t = Now();
  const std::vector<int64_t> shape{2, 3};
  timeline.Ready(0, "grad\"a", 1, t);
  timeline.Ready(0, "grad\"a", 0, t + 5us);
  timeline.Negotiated(0, "grad\"a", OpKind::kAllreduce, t, t + 10us);
  timeline.Activity(0, "grad\"a", "MEMCPY_IN_FUSION_BUFFER", t + 11us, t + 12500ns);
  timeline.Executed(0, "grad\"a", OpKind::kAllreduce, t + 10us, t + 20us, DType::kFloat32, shape);
  timeline.Negotiated(3, "grad\"a", OpKind::kBroadcast, t, t);
  timeline.Stop();

  const auto events = Events();
  ExpectBalanced(events);
  const auto processes = Named(events, "process_name");
  ASSERT_EQ(processes.size(), 3u);
  EXPECT_EQ(processes[1]["args"]["name"].text, "grad\"a");
  EXPECT_EQ(processes[2]["args"]["name"].text, "grad\"a (set 3)");
  const double pid = processes[1]["pid"].number;

  const auto negotiation = Named(events, "NEGOTIATE_ALLREDUCE");
  ASSERT_EQ(negotiation.size(), 1u);
  EXPECT_EQ(negotiation[0]["ph"].text, "B");
  EXPECT_EQ(negotiation[0]["pid"].number, pid);
  EXPECT_EQ(negotiation[0]["tid"].number, 1);
  const double start = negotiation[0]["ts"].number;
  EXPECT_NEAR(Named(events, "0").at(0)["ts"].number, start + 5, 1e-3);
  EXPECT_EQ(Named(events, "1").at(0)["ph"].text, "X");
  EXPECT_EQ(Named(events, "1").at(0)["dur"].number, 0);
  EXPECT_NEAR(Named(events, "MEMCPY_IN_FUSION_BUFFER").at(0)["dur"].number, 1.5, 1e-3);
  EXPECT_NEAR(Named(events, "ALLREDUCE").at(0)["ts"].number, start + 10, 1e-3);
  EXPECT_EQ(Named(events, "NEGOTIATE_BROADCAST").size(), 1u);
  bool described = false;
  for (const Json& event : events) {
    if (event["ph"].text != "E" || !event.has("args")) continue;
    described = true;
    EXPECT_EQ(event["args"]["dtype"].text, "float32");
    EXPECT_EQ(event["args"]["shape"].text, "[2, 3]");
    EXPECT_NEAR(event["ts"].number, start + 20, 1e-3);
  }
  EXPECT_TRUE(described);
}

TEST_F(TimelineTest, CyclesAreMarkedOnlyIfAskedFor) {
  for (const bool asked : {false, true}) {
    Timeline timeline;
    TimelineOptions options = Options();
    options.mark_cycles = asked;
    ASSERT_TRUE(timeline.Start(options));
    timeline.Cycle(Now());
    timeline.Stop();
    const auto marks = Named(Events(), "CYCLE_START");
    ASSERT_EQ(marks.size(), asked ? 1u : 0u);
    if (asked) {
      EXPECT_EQ(marks[0]["ph"].text, "i");
      EXPECT_EQ(marks[0]["s"].text, "g");
    }
  }
}

TEST_F(TimelineTest, OffItRecordsNothingAndCanBeSwitchedOnAgain) {
  Timeline timeline;
  timeline.Ready(0, "before", 0, Now());
  ASSERT_TRUE(timeline.Start(Options()));
  EXPECT_TRUE(timeline.on());
  timeline.Ready(0, "first", 0, Now());
  TimelineOptions other = Options();
  other.path = folder_.File("other.json");
  ASSERT_TRUE(timeline.Start(other));
  timeline.Ready(0, "second", 0, Now());
  timeline.Flush();
  EXPECT_EQ(Named(Read(other.path), "process_name").at(1)["args"]["name"].text, "second");
  timeline.Stop();
  EXPECT_FALSE(timeline.on());
  timeline.Ready(0, "after", 0, Now());
  timeline.Flush();
  timeline.Stop();
  const auto processes = Named(Events(), "process_name");
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[1]["args"]["name"].text, "first");
  EXPECT_EQ(Named(Read(other.path), "process_name").size(), 2u);
}

TEST_F(TimelineTest, WhatDoesNotFitIsDroppedAndCounted) {
  Timeline timeline(16);
  ASSERT_TRUE(timeline.Start(Options()));
  constexpr size_t kEvents = 200000;
  for (size_t i = 0; i < kEvents; ++i) timeline.Ready(0, "a", 0, Now());
  timeline.Stop();
  EXPECT_GT(timeline.dropped(), 0u);
  const auto events = Events();
  double said = 0;
  for (const Json& event : Named(events, "DROPPED")) said += event["args"]["events"].number;
  EXPECT_EQ(said, timeline.dropped());
  EXPECT_EQ(Named(events, "0").size() + timeline.dropped(), kEvents);
}

TEST_F(TimelineTest, ManyThreadsLoseNothing) {
  Timeline timeline(1 << 16);
  ASSERT_TRUE(timeline.Start(Options()));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "tensor" + std::to_string(t);
      for (int i = 0; i < 2000; ++i) timeline.Negotiated(0, name, OpKind::kAllgather, Now(), Now());
    });
  }
  for (auto& thread : threads) thread.join();
  timeline.Stop();
  const auto events = Events();
  ExpectBalanced(events);
  EXPECT_EQ(timeline.dropped(), 0u);
  EXPECT_EQ(Named(events, "NEGOTIATE_ALLGATHER").size(), 8000u);
  EXPECT_EQ(Named(events, "process_name").size(), 5u);
}

TEST_F(TimelineTest, FilesAreBoundedAndEachIsComplete) {
  Timeline timeline(1 << 16);
  TimelineOptions options = Options();
  options.max_bytes = 200000;
  ASSERT_TRUE(timeline.Start(options));
  for (int i = 0; i < 5000; ++i) {
    timeline.Negotiated(0, "tensor" + std::to_string(i % 10), OpKind::kAllreduce, Now(), Now());
  }
  timeline.Stop();
  EXPECT_EQ(timeline.dropped(), 0u);
  EXPECT_LE(ReadFile(path_).size() + ReadFile(path_ + ".1").size(), 200000u);
  for (const std::string& path : {path_, path_ + ".1"}) {
    const auto events = Read(path);
    ExpectBalanced(events);
    EXPECT_EQ(Named(events, "hvd_clock").size(), 1u);
    // Who is in a file is introduced in it.
    std::set<double> introduced;
    for (const Json& event : Named(events, "process_name")) introduced.insert(event["pid"].number);
    for (const Json& event : events) EXPECT_TRUE(introduced.contains(event["pid"].number));
  }
}

TEST_F(TimelineTest, APlaceThatCannotBeWrittenIsAnError) {
  Timeline timeline;
  TimelineOptions options = Options();
  options.path = "/proc/nowhere/t.json";
  EXPECT_FALSE(timeline.Start(options));
  EXPECT_FALSE(timeline.on());
  timeline.Ready(0, "a", 0, Now());
}

TEST_F(TimelineTest, AFullDiskEndsTheTimelineAndNothingElse) {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, SIG_IGN);
  Timeline timeline;
  ASSERT_TRUE(timeline.Start(Options()));
  const rlimit small{100000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  for (int i = 0; i < 10000000 && timeline.on(); ++i) timeline.Ready(0, "a", 0, Now());
  EXPECT_FALSE(timeline.on());
  timeline.Stop();
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_GT(Events().size(), 100u);
}

TEST_F(TimelineTest, AKilledRankLeavesACompleteTrace) {
  for (int round = 0; round < 10; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe(pipe), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      Timeline timeline;
      if (!timeline.Start(Options())) ::_exit(1);
      for (int i = 0;; ++i) {
        timeline.Negotiated(0, "tensor" + std::to_string(i % 100), OpKind::kAllreduce, Now(), Now());
        timeline.Executed(0, "tensor" + std::to_string(i % 100), OpKind::kAllreduce, Now(), Now(), DType::kInt8, {});
        if (i == 1000 * round) {
          timeline.Flush();
          [[maybe_unused]] const auto told = ::write(pipe[1], "x", 1);
        }
      }
    }
    ::close(pipe[1]);
    char begun = 0;
    ASSERT_EQ(::read(pipe[0], &begun, 1), 1) << "the writer ended by itself";
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(pipe[0]);
    const auto events = Events();
    EXPECT_GT(Named(events, "ALLREDUCE").size(), 0u);
    ExpectBalanced(events);
  }
}

TEST(TimelinePath, HasTheRankBeforeTheSuffix) {
  EXPECT_EQ(TimelinePath("/a/t.json", 0), "/a/t.json");
  EXPECT_EQ(TimelinePath("/a/t.json", 3), "/a/t.3.json");
  EXPECT_EQ(TimelinePath("/a.b/t", 3), "/a.b/t.3");
  EXPECT_EQ(TimelinePath("/a/.t", 3), "/a/.t.3");
  EXPECT_EQ(TimelinePath("t", 12), "t.12");
}

}  // namespace
}  // namespace hvd::trace
