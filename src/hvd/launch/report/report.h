// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is said at the end: which rank failed first and why, for people and for programs. Pure.

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "hvd/launch/plan/hosts.h"
#include "hvd/launch/remote/host_failure.h"
#include "hvd/launch/report/diagnose.h"

namespace hvd::launch {

struct RankReport {
  Slot slot;
  int pid = 0;
  Ending ending;
  double ended_after_s = 0;             // since the start of the job
  std::vector<std::string> last_lines;  // of stderr
};

// How the members of an elastic job changed.
struct ElasticReport {
  int views = 0, recoveries = 0, rollbacks = 0;
  double lost_s = 0;
};

struct Report {
  std::vector<RankReport> ranks;
  Diagnosis diagnosis;
  std::optional<HostFailure> host_failure{};  // the job could not begin because of it; then there is no diagnosis
  std::string why{};                          // an elastic job could not go on; empty: it did not come to that
  std::optional<ElasticReport> elastic{};
  int exit_code = 0;
  int interrupted_by = 0;  // signal that the launcher got
  std::time_t started_at = 0;
  double elapsed_s = 0;
  std::vector<std::string> witness{};  // last lines of stderr of a rank that names the cause, if the cause was silent
  bool shown = true;                   // what the first rank printed was shown while it ran
  std::string logs;                    // folder of the ranks' output, if it was kept
  std::string flight;                  // folder of the flight recorders' dumps, if there are any
};

// Several lines, the last ended by '\n'; empty if all went well.
std::string ReportText(const Report& report);
// One line of JSON with its '\n'.
std::string ReportJson(const Report& report);
// The same where nothing was started.
std::string RefusalJson(const std::string& why, int exit_code);

// "exit code 3", "signal 9 (SIGKILL)", ...
std::string Describe(const Ending& ending);
std::string Suggestion(const Report& report);
std::string SignalName(int signal);
// "rank 3", "ranks 1, 2 and 5 more", ...
std::string RankList(const std::vector<int>& ranks);

}  // namespace hvd::launch
