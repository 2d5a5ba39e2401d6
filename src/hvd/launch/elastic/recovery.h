// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the user reads about changes of an elastic job: a line for each view after the first, and a summary.
//
// Thread safety: all functions are pure.

#include <cstdint>
#include <string>
#include <vector>

#include "hvd/launch/report/diagnose.h"

namespace hvd::launch::elastic {

// A process that has left the view, or entered it.
struct Change {
  enum class Kind {
    kLost,
    kSilent,   // it did not respond, because it was stopped or hung, so it was killed
    kLate,     // it runs, but was not ready in time
    kRemoved,  // its slot is no longer the job's
    kAdded,
  };
  Kind kind;
  int rank = -1;
  int pid = 0;
  std::string host{};
  Ending ending{};  // of kLost
};

struct Totals {
  int recoveries = 0, rollbacks = 0;
  double lost_s = 0;  // from the notice of a loss until the next view ran
};

// "rank 2 (pid 4242, localhost) was killed by signal 9; rank 3 (...) joins"
std::string Describe(const std::vector<Change>& changes);
// The same, and "; 3 ranks go on from commit 41, 0.05 s".
std::string RecoveryLine(const std::vector<Change>& changes, int size, int64_t commit, bool rolled_back,
                         double seconds);
// "3 recoveries, 0 rollbacks, 1.4 s lost"
std::string Summary(const Totals& totals);

}  // namespace hvd::launch::elastic
