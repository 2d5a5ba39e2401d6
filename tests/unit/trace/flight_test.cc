// SPDX-License-Identifier: Apache-2.0
#include "hvd/trace/flight.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <thread>

#include "hvd/base/crash_teller.h"
#include "hvd/trace/flight_signals.h"
#include "tests/unit/trace/strict_json.h"

namespace hvd::trace {
namespace {

std::vector<Json> ReadLines(const std::string& path) {
  std::vector<Json> lines;
  std::istringstream in(ReadFile(path));
  for (std::string line; std::getline(in, line);) {
    auto value = JsonReader::Parse(line);
    EXPECT_TRUE(value) << line;
    if (value) lines.push_back(std::move(*value));
  }
  return lines;
}

std::vector<Json> Operations(const std::vector<Json>& lines) {
  std::vector<Json> operations;
  for (const Json& line : lines) {
    if (line.has("n")) operations.push_back(line);
  }
  return operations;
}

// An operation of a name that was not there before.
FlightRecorder::Id Submit(FlightRecorder& recorder, const FlightOp& op) {
  FlightRecorder::Known known = FlightRecorder::kNone;
  return recorder.Submit(op, &known, recorder.ticks().Now());
}

class FlightTest : public ::testing::Test {
 protected:
  FlightOptions Options(uint32_t entries = 16) const {
    return {.rank = 3, .size = 4, .generation = 2, .host = "node\"7", .folder = folder_.path(), .entries = entries};
  }
  std::vector<Json> Dumped() const { return ReadLines(folder_.File("flight.3.json")); }

  TempFolder folder_;
};

TEST_F(FlightTest, ADumpBeginsWithWhoAndEndsWithEnd) {
  FlightRecorder recorder(Options());
  recorder.AddPeer(0, "node0", 4711);
  recorder.AddSet(1, std::vector<Rank>{0, 3});
  ASSERT_TRUE(recorder.Dump("stall"));
  const auto lines = Dumped();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["rank"].number, 3);
  EXPECT_EQ(lines[0]["size"].number, 4);
  EXPECT_EQ(lines[0]["pid"].number, ::getpid());
  EXPECT_EQ(lines[0]["host"].text, "node\"7");
  EXPECT_EQ(lines[0]["reason"].text, "stall");
  EXPECT_EQ(lines[0]["version"].text, HVD_VERSION);
  EXPECT_EQ(lines[1]["peer"].number, 0);
  EXPECT_EQ(lines[1]["pid"].number, 4711);
  EXPECT_EQ(lines[2]["ranks"].items.size(), 2u);
  EXPECT_TRUE(lines[3].has("end"));
}

TEST_F(FlightTest, AnOperationIsDescribedWithItsWay) {
  FlightRecorder recorder(Options());
  const std::vector<int64_t> shape{2, 0, 1000000007};
  const auto id = Submit(recorder, {.set = 5,
                                    .name = "grad/kernel:0",
                                    .dtype = DType::kBFloat16,
                                    .reduce = ReduceOp::kMax,
                                    .bytes = 77,
                                    .shape = shape});
  recorder.Mark(id, FlightState::kSent, recorder.ticks().Now());
  recorder.MarkAgreed(id, 42, recorder.ticks().Now());
  recorder.Mark(id, FlightState::kRunning, recorder.ticks().Now());
  recorder.Mark(id, FlightState::kDone, recorder.ticks().Now());
  ASSERT_TRUE(recorder.Dump("test"));
  const auto lines = Dumped();
  const auto operations = Operations(lines);
  ASSERT_EQ(operations.size(), 1u);
  const Json& op = operations[0];
  EXPECT_EQ(op["set"].number, 5);
  EXPECT_EQ(op["name"].text, "grad/kernel:0");
  EXPECT_EQ(op["op"].text, "ALLREDUCE");
  EXPECT_EQ(op["dtype"].text, "bfloat16");
  EXPECT_EQ(op["reduce"].text, "max");
  EXPECT_EQ(op["bytes"].number, 77);
  ASSERT_EQ(op["shape"].items.size(), 3u);
  EXPECT_EQ(op["shape"].items[2].number, 1000000007);
  EXPECT_EQ(op["state"].text, "done");
  EXPECT_EQ(op["position"].number, 42);
  double last = 0;
  for (const char* state : {"submitted", "sent", "agreed", "running", "done"}) {
    ASSERT_TRUE(op["ns"].has(state)) << state;
    EXPECT_GE(op["ns"][state].number, last);
    last = op["ns"][state].number;
  }
  EXPECT_LE(last, lines[0]["monotonic_ns"].number);
}

TEST_F(FlightTest, FailuresAndMissingRanksAreKept) {
  FlightRecorder recorder(Options());
  const auto failed = Submit(recorder, {.name = "a"});
  recorder.MarkFailed(failed, Code::kFailedPrecondition, 2, recorder.ticks().Now());
  const auto waiting = Submit(recorder, {.name = "b", .op = OpKind::kBarrier});
  recorder.SetMissing(waiting, std::vector<Rank>{1, 2, 4, 8, 16, 32, 64, 128, 256});
  const auto served = Submit(recorder, {.name = "c", .op = OpKind::kBroadcast, .root = 1});
  recorder.SetMissing(served, std::vector<Rank>{1});
  recorder.SetMissing(served, {});
  ASSERT_TRUE(recorder.Dump("test"));
  const auto operations = Operations(Dumped());
  ASSERT_EQ(operations.size(), 3u);
  EXPECT_EQ(operations[0]["state"].text, "failed");
  EXPECT_EQ(operations[0]["code"].number, 9);
  EXPECT_EQ(operations[0]["at_fault"].number, 2);
  EXPECT_TRUE(operations[0]["ns"].has("failed"));
  EXPECT_EQ(operations[1]["missing_count"].number, 9);
  ASSERT_EQ(operations[1]["missing"].items.size(), 7u);
  EXPECT_EQ(operations[1]["missing"].items[6].number, 64);
  EXPECT_FALSE(operations[1].has("dtype"));
  EXPECT_FALSE(operations[2].has("missing"));
  EXPECT_EQ(operations[2]["root"].number, 1);
}

TEST_F(FlightTest, OnlyTheLastOperationsAreKept) {
  FlightRecorder recorder(Options(16));
  FlightRecorder::Id first = 0;
  for (int i = 0; i < 100; ++i) {
    const auto id = Submit(recorder, {.name = "op" + std::to_string(i)});
    if (i == 0) first = id;
  }
  recorder.Mark(first, FlightState::kDone,
                recorder.ticks().Now());  // Long replaced: must not touch the one in its place.
  ASSERT_TRUE(recorder.Dump("test"));
  const auto operations = Operations(Dumped());
  ASSERT_EQ(operations.size(), 16u);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(operations[i]["name"].text, "op" + std::to_string(84 + i));
    EXPECT_EQ(operations[i]["state"].text, "submitted");
  }
}

TEST_F(FlightTest, LongNamesAndManyDimensionsAreCut) {
  FlightRecorder recorder(Options());
  const std::string name = std::string(500, 'a') + std::string(500, 'z');
  const std::vector<int64_t> shape(40, 1);
  Submit(recorder, {.name = name, .shape = shape});
  Submit(recorder, {.name = std::string(64, 'x')});
  ASSERT_TRUE(recorder.Dump("test"));
  const auto operations = Operations(Dumped());
  EXPECT_EQ(operations[0]["name"].text, std::string(31, 'a') + "~" + std::string(32, 'z'));
  EXPECT_EQ(operations[0]["shape"].items.size(), 8u);
  EXPECT_EQ(operations[0]["dimensions"].number, 40);
  EXPECT_EQ(operations[1]["name"].text, std::string(64, 'x'));
}

TEST_F(FlightTest, WithoutAFolderADumpDoesNothing) {
  FlightRecorder recorder({.rank = 0, .size = 1});
  EXPECT_TRUE(recorder.Dump("test"));
  EXPECT_TRUE(recorder.DumpFromSignal("test"));
}

TEST_F(FlightTest, AFolderThatCannotBeMadeIsAnError) {
  FlightOptions options = Options();
  options.folder = "/proc/nowhere";
  FlightRecorder recorder(options);
  const auto status = recorder.Dump("test");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("/proc/nowhere/flight.3.json"), std::string::npos);
}

TEST_F(FlightTest, AnOperationThatComesAgainIsDescribedOnce) {
  FlightRecorder recorder(Options(4));
  const std::vector<int64_t> small{2};
  const std::vector<int64_t> large{3};
  FlightRecorder::Known known = FlightRecorder::kNone;
  const auto submit = [&](const FlightOp& op) {
    recorder.Submit(op, &known, recorder.ticks().Now());
    return known;
  };
  const auto first = submit({.name = "a", .bytes = 8, .shape = small});
  EXPECT_EQ(submit({.name = "a", .bytes = 8, .shape = small}), first);
  EXPECT_NE(submit({.name = "a", .bytes = 8, .shape = large}), first);
  const auto grown = known;
  EXPECT_NE(submit({.name = "a", .reduce = ReduceOp::kMax, .bytes = 8, .shape = large}), grown);
  ASSERT_TRUE(recorder.Dump("test"));
  const auto operations = Operations(Dumped());
  ASSERT_EQ(operations.size(), 4u);
  EXPECT_EQ(operations[1]["shape"].items[0].number, 2);
  EXPECT_EQ(operations[2]["shape"].items[0].number, 3);
  EXPECT_EQ(operations[2]["reduce"].text, "sum");
  EXPECT_EQ(operations[3]["reduce"].text, "max");
}

// One name comes again and again among names that come once: its description must not be lost while it is in use.
TEST_F(FlightTest, ADescriptionLivesAsLongAsItsOperations) {
  FlightRecorder recorder(Options(4));
  FlightRecorder::Known known = FlightRecorder::kNone;
  for (int i = 0; i < 60; ++i) {
    for (int other = 0; other < i % 12; ++other) Submit(recorder, {.name = "once"});
    recorder.Submit({.name = "again"}, &known, recorder.ticks().Now());
    ASSERT_TRUE(recorder.Dump("test"));
    const auto lines = Dumped();
    EXPECT_EQ(lines.back()["skipped"].number, 0);
    EXPECT_EQ(Operations(lines).back()["name"].text, "again");
  }
}

TEST_F(FlightTest, DetailsEndWithTheirOperation) {
  FlightRecorder recorder(Options(2));
  for (int i = 0; i < 3; ++i) {
    const auto id = Submit(recorder, {.name = "fails"});
    recorder.SetMissing(id, std::vector<Rank>{2});
    recorder.MarkFailed(id, Code::kUnknown, 1, recorder.ticks().Now());
  }
  const auto waiting = Submit(recorder, {.name = "waits"});
  const auto failed = Submit(recorder, {.name = "fails otherwise"});
  recorder.MarkFailed(failed, Code::kInternal, -1, recorder.ticks().Now());
  ASSERT_TRUE(recorder.Dump("test"));
  const auto operations = Operations(Dumped());
  ASSERT_EQ(operations.size(), 2u);
  EXPECT_EQ(operations[0]["n"].number, waiting);
  EXPECT_FALSE(operations[0].has("missing"));
  EXPECT_FALSE(operations[1].has("at_fault"));
}

// A writer that laps the small ring all the time; what a dump shows must belong together.
TEST_F(FlightTest, EntriesAreNeverMixed) {
  FlightRecorder recorder(Options(8));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::array<FlightRecorder::Known, 3> known;
    known.fill(FlightRecorder::kNone);
    for (size_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      const size_t w = i % 3;
      if (i % 5 == 0) known[w] = FlightRecorder::kNone;  // as if the name had been forgotten
      const std::string name(10 + 20 * w, static_cast<char>('a' + w));
      const std::vector<int64_t> shape(w + 1, static_cast<int64_t>(w));
      const auto id = recorder.Submit({.set = static_cast<int>(w), .name = name, .bytes = w, .shape = shape}, &known[w],
                                      recorder.ticks().Now());
      recorder.Mark(id, FlightState::kRunning, recorder.ticks().Now());
      if (w == 2) recorder.MarkFailed(id, Code::kInternal, 2, recorder.ticks().Now());
    }
  });
  size_t seen = 0;
  for (int round = 0; round < 300 || seen == 0; ++round) {
    ASSERT_TRUE(recorder.Dump("test"));
    const auto lines = Dumped();
    ASSERT_TRUE(lines.back().has("end"));
    for (const Json& op : Operations(lines)) {
      ++seen;
      const auto w = static_cast<size_t>(op["set"].number);
      EXPECT_EQ(op["name"].text, std::string(10 + 20 * w, static_cast<char>('a' + w)));
      EXPECT_EQ(op["bytes"].number, w);
      ASSERT_EQ(op["shape"].items.size(), w + 1);
      for (const Json& dim : op["shape"].items) EXPECT_EQ(dim.number, w);
      if (op["state"].text == "failed") {
        EXPECT_EQ(op["at_fault"].number, 2);
      }
    }
  }
  stop = true;
  writer.join();
}

// For tests where no dump is asked for.
const FlightSignals::Dump kNoDump = [](std::string_view) { ADD_FAILURE() << "a dump was asked for"; };

TEST_F(FlightTest, AUserSignalDumpsAndTheProgramGoesOn) {
  FlightRecorder recorder(Options());
  Submit(recorder, {.name = "a"});
  {
    std::promise<bool> good;
    const FlightSignals signals(recorder, [&](std::string_view reason) { good.set_value(!!recorder.Dump(reason)); });
    ASSERT_EQ(::raise(SIGUSR2), 0);
    EXPECT_TRUE(good.get_future().get());
    EXPECT_EQ(Dumped()[0]["reason"].text, "SIGUSR2");
  }
  struct sigaction now {};
  ::sigaction(SIGUSR2, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST_F(FlightTest, WithoutAFolderAUserSignalIsALineAndTheProgramGoesOn) {
  FlightOptions options = Options();
  options.folder.clear();
  FlightRecorder recorder(std::move(options));
  const FlightSignals signals(recorder, kNoDump);
  ::testing::internal::CaptureStderr();
  ASSERT_EQ(::raise(SIGUSR2), 0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("rank 3"), std::string::npos) << said;
  EXPECT_NE(said.find("HOROVOD_FLIGHT_DIR"), std::string::npos) << said;
  struct sigaction crash {};
  ::sigaction(SIGILL, nullptr, &crash);
  EXPECT_EQ(crash.sa_handler, SIG_DFL) << "there is nothing to write in a crash";
}

// Where a test's teller of crashes looks whether there is a file already, and what it leaves if there is none.
std::string g_flight_file, g_told_file;

TEST_F(FlightTest, ACrashTellsThePeersBeforeItWrites) {
  g_flight_file = folder_.File("flight.3.json");
  g_told_file = folder_.File("told");
  const pid_t child = ::fork();
  if (child == 0) {
    FlightRecorder recorder(Options());
    const FlightSignals signals(recorder, kNoDump);
    crash_teller = [](int) {
      if (::access(g_flight_file.c_str(), F_OK) != 0) ::mkdir(g_told_file.c_str(), 0700);
    };
    ::raise(SIGILL);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGILL);
  EXPECT_EQ(::access(g_told_file.c_str(), F_OK), 0);
  EXPECT_EQ(Dumped()[0]["reason"].text, "crash: SIGILL");
}

TEST_F(FlightTest, PlantedLinksAndPipesAreNeitherFollowedNorWaitedFor) {
  const std::string victim = folder_.File("victim");
  ASSERT_EQ(::close(::open(victim.c_str(), O_CREAT | O_WRONLY, 0600)), 0);
  for (const char* name : {"flight.3.json", "flight.3.json.part"}) {
    const std::string path = folder_.File(name);
    for (const bool pipe : {false, true}) {
      ::unlink(path.c_str());
      ASSERT_EQ(pipe ? ::mkfifo(path.c_str(), 0666) : ::symlink(victim.c_str(), path.c_str()), 0);
      FlightRecorder recorder(Options());
      ASSERT_TRUE(recorder.Dump("stall"));
      EXPECT_EQ(Dumped()[0]["reason"].text, "stall");
    }
  }
  EXPECT_EQ(ReadFile(victim), "");
}

TEST_F(FlightTest, AUsersOwnHandlerIsLeftAlone) {
  struct sigaction own {};
  own.sa_handler = SIG_IGN;
  struct sigaction before {};
  ::sigaction(SIGUSR2, &own, &before);
  FlightRecorder recorder(Options());
  {
    const FlightSignals signals(recorder, kNoDump);
    ::raise(SIGUSR2);
    EXPECT_EQ(ReadFile(recorder.path()), "");
  }
  struct sigaction now {};
  ::sigaction(SIGUSR2, &before, &now);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
}

TEST_F(FlightTest, ACrashDumpsAndStillDiesOfItsSignal) {
  for (const int signo : {SIGSEGV, SIGABRT, SIGBUS}) {
    const pid_t child = ::fork();
    if (child == 0) {
      struct sigaction plain {};  // Not a sanitizer's.
      plain.sa_handler = SIG_DFL;
      ::sigaction(signo, &plain, nullptr);
      FlightRecorder recorder(Options());
      Submit(recorder, {.name = "last words"});
      const FlightSignals signals(recorder, kNoDump);
      ::raise(signo);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signo);
    const auto lines = Dumped();
    EXPECT_EQ(lines[0]["reason"].text, std::string("crash: SIG") + sigabbrev_np(signo));
    EXPECT_EQ(Operations(lines)[0]["name"].text, "last words");
  }
}

// The handler of somebody else, as of Python's faulthandler.
void ExitWith7(int) { ::_exit(7); }

TEST_F(FlightTest, ACrashIsHandedOnToWhoHandledItBefore) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, &ExitWith7);
    FlightRecorder recorder(Options());
    const FlightSignals signals(recorder, kNoDump);
    ::raise(SIGSEGV);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(Dumped()[0]["reason"].text, "crash: SIGSEGV");
}

TEST_F(FlightTest, AForkedChildDumpsNothing) {
  FlightRecorder recorder(Options());
  const FlightSignals signals(recorder, kNoDump);
  const pid_t child = ::fork();
  if (child == 0) {
    ::raise(SIGUSR2);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(ReadFile(recorder.path()), "");
}

}  // namespace
}  // namespace hvd::trace
