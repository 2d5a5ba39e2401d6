// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/report/report.h"

#include <fmt/chrono.h>
#include <signal.h>

#include <algorithm>
#include <map>

#include "hvd/launch/report/known_errors.h"
#include "hvd/launch/report/old_program.h"

namespace hvd::launch {
namespace {

// The collateral ranks, those that ended alike together.
std::string CollateralText(const Report& report) {
  std::map<std::string, std::vector<int>> alike;
  for (const int rank : report.diagnosis.collateral) {
    const Ending& ending = report.ranks[rank].ending;
    alike[ending.lost.empty() && (ending.told || !ending.over()) ? "ended by horovodrun" : Describe(ending)].push_back(
        rank);
  }
  std::string text;
  for (const auto& [how, ranks] : alike)
    text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", RankList(ranks), how);
  return text;
}

// What the first rank printed at last; of an error that all ranks have printed, the error alone.
std::string StderrText(const Report& report) {
  const RankReport& cause = report.ranks[report.diagnosis.cause];
  if (cause.last_lines.empty()) return {};
  const bool seen = !report.diagnosis.alike.empty() && report.shown;
  std::string text = seen ? "  their error:\n" : "  its stderr:\n";
  for (const std::string& line : seen ? LastError(cause.last_lines) : cause.last_lines) {
    text += fmt::format("    {}\n", line);
  }
  return text;
}

std::string FlightText(const Report& report) {
  if (report.flight.empty()) return {};
  return fmt::format("  flight:     {}   (python -m horovod.flight {})\n", report.flight, report.flight);
}

std::string WhatHappened(const Report& report) {
  const RankReport& cause = report.ranks[report.diagnosis.cause];
  const Ending& ending = cause.ending;
  const std::string who = fmt::format("rank {}", cause.slot.rank);
  if (!ending.lost.empty()) return fmt::format("host {} was lost: {}", cause.slot.host, ending.lost);
  if (!ending.exec_error.empty()) return fmt::format("{} could not be executed: {}", who, ending.exec_error);
  if (report.diagnosis.silent) return fmt::format("{} did not respond, or never came; it was ended", who);
  if (ending.code == 0 && report.diagnosis.before_init) {
    return fmt::format("{} ended with exit code 0 before hvd.init(), in which the others waited for it", who);
  }
  if (ending.code == 0) return fmt::format("{} ended, with exit code 0, while the others still needed it", who);
  if ((ending.told && ending.signal != 0) || !ending.over())
    return fmt::format("{} was lost to the others; it was ended", who);
  if (!report.diagnosis.alike.empty()) {
    std::vector<int> ranks = report.diagnosis.alike;
    ranks.push_back(cause.slot.rank);
    std::ranges::sort(ranks);
    const std::string all =
        ranks.size() == report.ranks.size() ? fmt::format("all {} ranks", ranks.size()) : RankList(ranks);
    return fmt::format("{} {} {}", all, ending.signal != 0 ? "were each ended by" : "failed in the same way, with",
                       Describe(ending));
  }
  return fmt::format("{} {} {}", who, ending.signal != 0 ? "was ended by" : "failed with", Describe(ending));
}

}  // namespace

std::string RankList(const std::vector<int>& ranks) {
  constexpr size_t kMostNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  return ranks.size() > kMostNamed ? text + fmt::format(" and {} more", ranks.size() - kMostNamed) : text;
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

std::string Describe(const Ending& ending) {
  if (!ending.exec_error.empty()) return "could not be executed";
  if (!ending.lost.empty()) return "lost with its host";
  if (ending.signal != 0) return fmt::format("signal {} ({})", ending.signal, SignalName(ending.signal));
  if (ending.code) return fmt::format("exit code {}", *ending.code);
  return "still running";
}

std::string Suggestion(const Report& report) {
  const RankReport& cause = report.ranks[report.diagnosis.cause];
  const Ending& ending = cause.ending;
  const auto says = [error = LastError(cause.last_lines)](std::string_view text) {
    return std::ranges::any_of(error, [&](const std::string& line) { return line.starts_with(text); });
  };
  if (!ending.lost.empty()) {
    return fmt::format(
        "see whether {} is up and its network works (ping, dmesg there); its ranks were ended there, or will be as "
        "soon "
        "as it notices",
        cause.slot.host);
  }
  if (!ending.exec_error.empty()) return "see whether the program is for this machine, and the first line of a script";
  if (report.diagnosis.silent) {
    if (const auto known = ExplainError(report.witness)) return *known;
    return "see what it did: run again with HOROVOD_FLIGHT_DIR=DIR, or look into the process while it hangs (py-spy "
           "dump --pid PID); --start-timeout gives slow starts more time";
  }
  // A rank that exit code 0 or SIGKILL ended did not end with the error that it printed last.
  if (ending.code != 0 && ending.signal != SIGKILL) {
    if (const auto old = SuggestForOldProgram(cause.last_lines)) return *old;
    if (const auto known = ExplainError(cause.last_lines)) return *known;
    if (says("ModuleNotFoundError")) {
      return "install that module for the Python that ran the script, or run another one";
    }
    if (says("MemoryError")) return "it ran out of memory: use a smaller batch, or fewer ranks on this machine";
  }
  if (ending.code == 0 && report.diagnosis.before_init) {
    return "let every rank call hvd.init(), and as often as the others";
  }
  if (ending.code == 0) return "let every rank do the same number of steps, or call hvd.join() when one has no more";
  if (ending.signal == SIGKILL) {
    return "if nobody killed it, the kernel ran out of memory: dmesg | grep -i 'killed process'";
  }
  if (ending.signal == SIGSEGV || ending.signal == SIGBUS || ending.signal == SIGABRT || ending.signal == SIGILL ||
      ending.signal == SIGFPE) {
    return "it crashed in native code: run again with -x PYTHONFAULTHANDLER=1 to see where";
  }
  if (cause.last_lines.empty()) {
    return "it printed nothing on stderr: look for calls of sys.exit() or os._exit() in the program";
  }
  if (report.logs.empty()) return "what it printed is above; --log-dir DIR keeps the output of all ranks";
  return "what it printed is above and in the logs";
}

std::string ReportText(const Report& report) {
  if (report.host_failure) {
    const HostFailure& failure = *report.host_failure;
    return fmt::format("horovodrun: the job failed: host {}: {}\n{}  suggestion: {}\n", failure.host, failure.what,
                       FlightText(report), failure.suggestion);
  }
  if (report.diagnosis.cause < 0) {
    if (!report.why.empty()) return fmt::format("horovodrun: the job failed: {}\n", report.why);
    if (report.interrupted_by == 0) return {};
    return fmt::format("horovodrun: ended by {} after {:.1f} s\n{}", SignalName(report.interrupted_by),
                       report.elapsed_s, FlightText(report));
  }
  const RankReport& cause = report.ranks[report.diagnosis.cause];
  const auto when = report.started_at + static_cast<std::time_t>(cause.ended_after_s);
  std::string text = fmt::format("horovodrun: the job failed: {}\n", WhatHappened(report));
  text += fmt::format(
      "  first:      rank {} on host {}, pid {}: {}, at {:%Y-%m-%d %H:%M:%S}, {:.1f} s after the start\n",
      cause.slot.rank, cause.slot.host, cause.pid, Describe(cause.ending), fmt::localtime(when), cause.ended_after_s);
  text += StderrText(report);
  if (!report.why.empty()) text += fmt::format("  elastic:    {}\n", report.why);
  if (!report.diagnosis.collateral.empty()) text += fmt::format("  collateral: {}\n", CollateralText(report));
  if (!report.logs.empty()) text += fmt::format("  logs:       {}\n", report.logs);
  text += FlightText(report);
  text += fmt::format("  suggestion: {}\n", Suggestion(report));
  return text;
}

}  // namespace hvd::launch
