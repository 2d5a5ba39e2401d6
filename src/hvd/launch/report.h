// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is said at the end: which rank failed first and why, for people and for programs. Pure.

#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "hvd/launch/diagnose.h"
#include "hvd/launch/host_failure.h"
#include "hvd/launch/hosts.h"

namespace hvd::launch {

struct RankReport {
  Slot slot;
  int pid = 0;
  Ending ending;
  double ended_after_s = 0;             // since the start of the job
  std::vector<std::string> last_lines;  // of stderr
};

struct Report {
  std::vector<RankReport> ranks;
  Diagnosis diagnosis;
  std::optional<HostFailure> host_failure{};  // the job could not begin because of it; then there is no diagnosis
  int exit_code = 0;
  int interrupted_by = 0;  // signal that the launcher got
  std::time_t started_at = 0;
  double elapsed_s = 0;
  std::string logs;  // folder of the ranks' output, if it was kept
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

}  // namespace hvd::launch
