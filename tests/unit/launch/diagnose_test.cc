// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/report/diagnose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "hvd/launch/report/report.h"

namespace hvd::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Ending Exit(int code, int order, std::optional<Blame> blames = {}) {
  return {.code = code, .order = order, .blames = blames};
}
Ending Signal(int signal, int order, bool told = false) { return {.signal = signal, .told = told, .order = order}; }
Blame Lost(int rank) { return {rank, false}; }
Blame Silent(int rank) { return {rank, true}; }

TEST(Blames, TheLibrarysWords) {
  const auto rank = [](std::string_view line) { return FindBlame(line).value_or(Blame{}).rank; };
  EXPECT_EQ(rank("horovod.common.exceptions.HorovodInternalError: Horovod has been shut down: rank 12 (host a, pid 7) "
                 "died during allreduce"),
            12);
  EXPECT_EQ(rank("HorovodTimeoutError: rank 3 of 4 did not come to 127.0.0.1:1 within 30 s (3 came): see"), 3);
  EXPECT_EQ(rank("HorovodTimeoutError: ranks 1, 2 of 4 did not come to 127.0.0.1:1 within 30 s: see"), 1);
  EXPECT_EQ(rank("HorovodInitError: rank 2 (pid 7 on a) of 4 ended while the ranks were starting: its own"), 2);
  EXPECT_EQ(rank("ValueError: rank 0 gave up in hvd.init(): HOROVOD_AUTOTUNE_LOG=/nowhere/log cannot be written"), 0);
  const auto early =
      FindBlame("HorovodInitError: rank 2 of 4 ended with exit code 0 before it called hvd.init(), which");
  ASSERT_TRUE(early);
  EXPECT_EQ(early->rank, 2);
  EXPECT_TRUE(early->before_init);
  EXPECT_FALSE(early->silent);
  EXPECT_EQ(rank("Horovod has been shut down: hvd.shutdown() was called; call hvd.init() again"), -1);
  EXPECT_EQ(rank("training on rank 3 of 4"), -1);
  EXPECT_TRUE(FindBlame("Horovod has been shut down: rank 1 (host a, pid 2) did not respond for 5 s (stopped")->silent);
  EXPECT_FALSE(FindBlame("Horovod has been shut down: rank 1 (host a, pid 2) died")->silent);
}

TEST(Diagnosis, NobodyFailed) {
  EXPECT_EQ(Diagnose({Exit(0, 0), Exit(0, 1)}).cause, -1);
  EXPECT_EQ(Diagnose({Signal(SIGTERM, 0, true), Exit(0, 1)}).cause, -1) << "ended at the user's wish";
}

TEST(Diagnosis, TheFirstThatExits) {
  const Diagnosis found = Diagnose({Signal(SIGTERM, 1, true), Exit(3, 0), Signal(SIGTERM, 2, true)});
  EXPECT_EQ(found.cause, 1);
  EXPECT_EQ(found.exit_code, 3);
  EXPECT_THAT(found.collateral, ElementsAre(0, 2));
}

TEST(Diagnosis, TheOneThatTheOthersNameThoughItWentLast) {
  const Diagnosis found = Diagnose({Exit(1, 0, Lost(2)), Exit(1, 1, Lost(2)), Signal(SIGKILL, 2)});
  EXPECT_EQ(found.cause, 2);
  EXPECT_EQ(found.exit_code, 137);
  EXPECT_THAT(found.collateral, ElementsAre(0, 1));
}

Ending WithItsHost(int order, bool told = false) {
  return {.told = told, .lost = "it did not respond for 5 s", .order = order};
}

TEST(Diagnosis, AHostThatIsLostIsNamedWhoeverNoticedFirst) {
  // The ranks saw the silence first; then their launcher asked all to end; then it missed the host itself.
  const Diagnosis by_ranks =
      Diagnose({Exit(1, 0, Silent(2)), Exit(1, 1, Silent(3)), WithItsHost(2, true), WithItsHost(3, true)});
  EXPECT_EQ(by_ranks.cause, 2);
  EXPECT_EQ(by_ranks.exit_code, kHostLost);
  EXPECT_FALSE(by_ranks.silent);
  const Diagnosis by_us = Diagnose({Signal(SIGTERM, 2, true), Exit(1, 1), WithItsHost(0)});
  EXPECT_EQ(by_us.cause, 2);
  EXPECT_EQ(by_us.exit_code, kHostLost);
  // 1 saw the end of 0, which the launcher had asked to end.
  const Ending witness{.signal = SIGTERM, .told = true, .order = 3, .blames = Lost(0)};
  const Diagnosis by_us_too = Diagnose({Signal(SIGTERM, 2, true), witness, WithItsHost(0), WithItsHost(1)});
  EXPECT_EQ(by_us_too.cause, 2);
  EXPECT_EQ(by_us_too.exit_code, kHostLost);
  // A rank that failed before, and by itself, is the cause all the same.
  const Diagnosis before = Diagnose({Exit(3, 0), Exit(1, 1, Lost(0)), WithItsHost(2, true)});
  EXPECT_EQ(before.cause, 0);
  EXPECT_EQ(before.exit_code, 3);
}

TEST(Diagnosis, ASurvivorThatExitsIsNotBlamedForIt) {
  // 0 saw that 1 had gone, 1 had seen 2.
  const Diagnosis found = Diagnose({Exit(1, 1, Lost(1)), Exit(1, 0, Lost(2)), Exit(7, 2)});
  EXPECT_EQ(found.cause, 2);
  EXPECT_EQ(found.exit_code, 7);
}

TEST(Diagnosis, WithoutAWordASignalGoesBeforeAnExit) {
  const Diagnosis found = Diagnose({Exit(1, 0), Signal(SIGSEGV, 1), Exit(1, 2)});
  EXPECT_EQ(found.cause, 1);
  EXPECT_EQ(found.exit_code, 139);
}

TEST(Diagnosis, OneThatHungIsTheCauseAndTheFirstThatNoticedGivesTheCode) {
  for (const Ending& hung : {Signal(SIGKILL, 2, true), Signal(SIGKILL, 2, false), Signal(SIGTERM, 2, true)}) {
    const Diagnosis found = Diagnose({Exit(5, 0, Silent(2)), Signal(SIGTERM, 1, true), hung});
    EXPECT_EQ(found.cause, 2);
    EXPECT_TRUE(found.silent);
    EXPECT_EQ(found.exit_code, 5);
  }
}

TEST(Diagnosis, OneThatHungAndNobodyElseHasACode) {
  const Diagnosis found =
      Diagnose({{.signal = SIGTERM, .told = true, .order = 1, .blames = Silent(1)}, Signal(SIGKILL, 0)});
  EXPECT_EQ(found.cause, 1);
  EXPECT_EQ(found.exit_code, 1);
}

TEST(Diagnosis, OneThatWasAskedToEndOnItsWayOut) {
  const Diagnosis found = Diagnose({Exit(1, 0, Lost(1)), {.code = 3, .told = true, .order = 1}});
  EXPECT_EQ(found.cause, 1);
  EXPECT_EQ(found.exit_code, 3);
}

TEST(Diagnosis, OneThatLeftTooEarly) {
  const Diagnosis found = Diagnose({Exit(1, 1, Lost(1)), Exit(0, 0)});
  EXPECT_EQ(found.cause, 1);
  EXPECT_EQ(found.exit_code, 1);
}

TEST(Diagnosis, TwoThatBlameEachOther) {
  const Diagnosis found = Diagnose({Exit(1, 1, Lost(1)), Exit(1, 0, Lost(0))});
  EXPECT_GE(found.cause, 0);
  EXPECT_EQ(found.exit_code, 1);
}

TEST(Diagnosis, BlameOfARankThatIsNone) { EXPECT_EQ(Diagnose({Exit(4, 0, Lost(99))}).cause, 0); }

TEST(Diagnosis, RanksThatFailAlike) {
  const std::vector<Ending> endings{Exit(1, 2), Exit(1, 0), Exit(1, 1), Exit(2, 3)};
  Diagnosis found = Diagnose(endings);
  FindAlike(endings, {"", "", "other words", ""}, &found);
  EXPECT_EQ(found.cause, 0) << "the lowest";
  EXPECT_THAT(found.alike, ElementsAre(1));
  EXPECT_THAT(found.collateral, ElementsAre(2, 3));
  const std::string circle = "Error: Horovod has been shut down: ranks wait for different operations: x";
  const std::vector<Ending> waiting{Exit(1, 1), Exit(1, 0)};
  found = Diagnose(waiting);
  FindAlike(waiting, {circle + " during allreduce 'a'", circle + " during allreduce 'b'"}, &found);
  EXPECT_THAT(found.alike, ElementsAre(1));
}

Report Example() {
  Report report;
  for (int rank = 0; rank < 3; ++rank) report.ranks.push_back({.slot = {.host = "h", .rank = rank}, .pid = 100 + rank});
  report.ranks[0].ending = Exit(1, 1, Lost(1));
  report.ranks[1].ending = Signal(SIGKILL, 0);
  report.ranks[1].last_lines = {"Traceback (most recent call last):", "  x", "ValueError: \xff"};
  report.ranks[2].ending = Signal(SIGTERM, 2, true);
  report.diagnosis = Diagnose({report.ranks[0].ending, report.ranks[1].ending, report.ranks[2].ending});
  report.exit_code = report.diagnosis.exit_code;
  report.logs = "logs/1";
  return report;
}

TEST(Reports, SayWhatAPersonNeeds) {
  const std::string text = ReportText(Example());
  EXPECT_THAT(text, HasSubstr("the job failed: rank 1 was ended by signal 9 (SIGKILL)"));
  EXPECT_THAT(text, HasSubstr("rank 1 on host h, pid 101: signal 9 (SIGKILL), at "));
  EXPECT_THAT(text, HasSubstr("    Traceback (most recent call last):\n"));
  EXPECT_THAT(text, HasSubstr("collateral: rank 2 (ended by horovodrun); rank 0 (exit code 1)"));
  EXPECT_THAT(text, HasSubstr("logs:       logs/1"));
  EXPECT_THAT(text, HasSubstr("suggestion: if nobody killed it, the kernel ran out of memory"));
  EXPECT_EQ(ReportText({}), "");
}

TEST(Reports, AsJson) {
  const auto json = nlohmann::json::parse(ReportJson(Example()));
  EXPECT_EQ(json["status"], "failed");
  EXPECT_EQ(json["exit_code"], 137);
  EXPECT_EQ(json["first"]["rank"], 1);
  EXPECT_EQ(json["first"]["signal_name"], "SIGKILL");
  EXPECT_THAT(json["first"]["traceback"].get<std::string>(), testing::StartsWith("Traceback"));
  EXPECT_EQ(json["collateral"].size(), 2U);
  EXPECT_EQ(nlohmann::json::parse(ReportJson({}))["status"], "ok");
}

TEST(Reports, NameAHostThatIsLostOrNeverCame) {
  Report report;
  for (int rank = 0; rank < 2; ++rank) {
    report.ranks.push_back({.slot = {.host = rank == 0 ? "a" : "b", .rank = rank}, .pid = 100 + rank});
  }
  report.ranks[0].ending = Exit(1, 1, Lost(1));
  report.ranks[1].ending = WithItsHost(0);
  report.diagnosis = Diagnose({report.ranks[0].ending, report.ranks[1].ending});
  EXPECT_THAT(ReportText(report), HasSubstr("the job failed: host b was lost: it did not respond for 5 s\n"));
  EXPECT_EQ(nlohmann::json::parse(ReportJson(report))["first"]["host_lost"], "it did not respond for 5 s");
  Report early;
  early.host_failure = HostFailure{"b", kUnreachable, "ssh ended with exit code 255: no", "try it by hand"};
  early.exit_code = kUnreachable;
  EXPECT_EQ(ReportText(early),
            "horovodrun: the job failed: host b: ssh ended with exit code 255: no\n  suggestion: try it by hand\n");
  const auto json = nlohmann::json::parse(ReportJson(early));
  EXPECT_EQ(json["status"], "failed");
  EXPECT_EQ(json["host"], "b");
}

}  // namespace
}  // namespace hvd::launch
