// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/elastic/recovery.h"

#include <fmt/format.h>

namespace hvd::launch::elastic {
namespace {

std::string WhatHappened(const Change& change) {
  switch (change.kind) {
    case Change::Kind::kLost:
      if (!change.ending.exec_error.empty()) return "could not be executed: " + change.ending.exec_error;
      if (change.ending.signal != 0) return fmt::format("was killed by signal {}", change.ending.signal);
      return fmt::format("ended with exit code {}", change.ending.code.value_or(0));
    case Change::Kind::kSilent:
      return "did not respond, so it was killed";
    case Change::Kind::kLate:
      return "was not ready in time; it joins again when it is";
    case Change::Kind::kRemoved:
      return "leaves, because its slot was removed";
    case Change::Kind::kAdded:
      return "joins";
  }
  return {};
}

std::string Counted(int count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

}  // namespace

std::string Describe(const std::vector<Change>& changes) {
  std::string text;
  for (const Change& change : changes) {
    text += fmt::format("{}rank {} (pid {}, {}) {}", text.empty() ? "" : "; ", change.rank, change.pid, change.host,
                        WhatHappened(change));
  }
  return text;
}

std::string RecoveryLine(const std::vector<Change>& changes, int size, int64_t commit, bool rolled_back,
                         double seconds) {
  const char* const verb = size == 1 ? "goes on" : "go on";
  const std::string from =
      commit < 0 ? fmt::format("{} from the start", verb) : fmt::format("{} from commit {}", verb, commit);
  const std::string text = Describe(changes);
  return fmt::format("{}{}{} {}, {:.2f} s{}", text, text.empty() ? "" : "; ", Counted(size, "rank", "ranks"), from,
                     seconds, rolled_back ? "; a complete commit was lost with all ranks that held it" : "");
}

std::string Summary(const Totals& totals) {
  return fmt::format("{}, {}, {:.1f} s lost", Counted(totals.recoveries, "recovery", "recoveries"),
                     Counted(totals.rollbacks, "rollback", "rollbacks"), totals.lost_s);
}

}  // namespace hvd::launch::elastic
