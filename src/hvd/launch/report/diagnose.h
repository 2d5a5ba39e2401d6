// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which rank failed first for a reason of its own, and which only because of it. Pure.

#include <optional>
#include <string>
#include <vector>

#include "hvd/launch/cli/exit_codes.h"
#include "hvd/launch/report/blame.h"

namespace hvd::launch {

// How a rank ended. Neither code nor signal: it has not.
struct Ending {
  std::optional<int> code;
  int signal = 0;
  // By a signal that the launcher had sent before.
  bool told = false;
  std::string exec_error;  // why the program could not be executed at all
  std::string lost;        // why its host was lost, and the rank with it
  int order = 0;           // 0 for the first rank that ended, and so on
  std::optional<Blame> blames;

  bool over() const { return code.has_value() || signal != 0 || !lost.empty(); }
  bool failed() const { return over() && (signal != 0 || code.value_or(1) != 0); }
  // What a shell would say.
  int exit_code() const { return signal != 0 ? 128 + signal : code.value_or(kHostLost); }
};

struct Diagnosis {
  int cause = -1;  // rank; -1: none failed
  int exit_code = 0;
  // The cause did not end by itself: it was silent, or never came.
  bool silent = false;
  // It ended well, and the others wait for it in hvd.init().
  bool before_init = false;
  // Ranks that failed by themselves in the same way as the cause, with the same last words or none; see FindAlike.
  std::vector<int> alike;
  // Ranks that failed, or were ended, because of it.
  std::vector<int> collateral;
};

Diagnosis Diagnose(const std::vector<Ending>& endings);

// Moves ranks from `collateral` to `alike`. `last_words`: the last line of stderr of each rank.
void FindAlike(const std::vector<Ending>& endings, const std::vector<std::string>& last_words, Diagnosis* diagnosis);

}  // namespace hvd::launch
