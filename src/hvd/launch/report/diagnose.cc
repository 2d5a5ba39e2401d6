// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/report/diagnose.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

namespace hvd::launch {
namespace {

using Endings = std::vector<Ending>;

bool FailedByItself(const Ending& ending) { return ending.failed() && !ending.told; }

// The rank at the end of "I ended because of rank a, which ended because of rank b, ...". Two that blame each other
// stop it.
int FollowBlame(const Endings& endings, int rank) {
  std::set<int> seen{rank};
  while (true) {
    const auto& blames = endings[rank].blames;
    if (!blames || blames->rank >= static_cast<int>(endings.size()) || !seen.insert(blames->rank).second) return rank;
    rank = blames->rank;
  }
}

bool BlamedAs(bool Blame::*what, const Endings& endings, int rank) {
  return std::ranges::any_of(endings, [&](const Ending& ending) {
    return ending.blames && ending.blames->rank == rank && (*ending.blames).*what;
  });
}

// The launcher missed a host before it ended anybody. What others say of a rank that it then ended is no cause.
bool EndedForALostHost(const Endings& endings, int rank) {
  return endings[rank].told && endings[rank].signal != 0 &&
         std::ranges::any_of(endings, [](const Ending& ending) { return !ending.lost.empty() && !ending.told; });
}

// By how many other ranks it is blamed.
std::vector<int> Votes(const Endings& endings) {
  std::vector<int> votes(endings.size());
  for (int rank = 0; rank < static_cast<int>(endings.size()); ++rank) {
    const int blamed = FollowBlame(endings, rank);
    if (blamed != rank && !EndedForALostHost(endings, blamed)) ++votes[blamed];
  }
  return votes;
}

// The cause's own code where it has one. A silent rank ends by whoever loses patience first, which says nothing: then
// it is the code of the first that ended because of it.
int ExitCode(const Endings& endings, const Diagnosis& diagnosis, const std::vector<int>& failed) {
  const Ending& cause = endings[diagnosis.cause];
  if (!cause.lost.empty()) return cause.exit_code();
  // What was about to exit with a code of its own may have been asked to end meanwhile.
  const bool own = cause.failed() && (!cause.told || cause.signal == 0);
  if (own && !diagnosis.silent) return cause.exit_code();
  for (const int rank : failed) {
    if (rank != diagnosis.cause) return endings[rank].exit_code();
  }
  return 1;
}

}  // namespace

Diagnosis Diagnose(const Endings& endings) {
  Diagnosis diagnosis;
  std::vector<int> failed;
  for (int rank = 0; rank < static_cast<int>(endings.size()); ++rank) {
    if (FailedByItself(endings[rank])) failed.push_back(rank);
  }
  if (failed.empty()) return diagnosis;
  std::ranges::sort(failed, {}, [&](int rank) { return endings[rank].order; });
  const std::vector<int> votes = Votes(endings);
  // Whom the others name is the cause. Without a word from anybody, one that died of a signal, or with its host, goes
  // before those that exited: the memory of a large process takes longer to go than its peers need to notice and exit.
  const auto most = std::ranges::max_element(votes);
  if (*most > 0) {
    diagnosis.cause = static_cast<int>(most - votes.begin());
  } else {
    const auto by_signal = std::ranges::find_if(
        failed, [&](int rank) { return endings[rank].signal != 0 || !endings[rank].lost.empty(); });
    diagnosis.cause = by_signal != failed.end() ? *by_signal : failed.front();
  }
  const Ending& cause = endings[diagnosis.cause];
  // One that ended by itself was not silent, whatever others thought.
  diagnosis.silent =
      BlamedAs(&Blame::silent, endings, diagnosis.cause) && cause.lost.empty() && !(cause.code && !cause.told);
  diagnosis.before_init = BlamedAs(&Blame::before_init, endings, diagnosis.cause);
  diagnosis.exit_code = ExitCode(endings, diagnosis, failed);
  for (int rank = 0; rank < static_cast<int>(endings.size()); ++rank) {
    if (rank != diagnosis.cause && (endings[rank].failed() || !endings[rank].over())) {
      diagnosis.collateral.push_back(rank);
    }
  }
  return diagnosis;
}

namespace {

// Ranks that wait for each other have the same error, which ends with the operation that each waits for.
std::string_view WhatIsCommon(std::string_view error) {
  const bool is_circle = error.find("Horovod has been shut down: ranks wait for") != std::string_view::npos;
  return is_circle ? error.substr(0, error.rfind(" during ")) : error;
}

}  // namespace

void FindAlike(const Endings& endings, const std::vector<std::string>& last_words, Diagnosis* diagnosis) {
  const int cause = diagnosis->cause;
  // A rank that was lost, or that others name, failed for a reason of its own.
  if (cause < 0 || diagnosis->silent || !FailedByItself(endings[cause]) || !endings[cause].lost.empty()) return;
  const auto is_alike = [&](int rank) {
    const Ending& ending = endings[rank];
    return FailedByItself(ending) && !ending.blames && ending.lost.empty() && ending.code == endings[cause].code &&
           ending.signal == endings[cause].signal && WhatIsCommon(last_words[rank]) == WhatIsCommon(last_words[cause]);
  };
  std::ranges::copy_if(diagnosis->collateral, std::back_inserter(diagnosis->alike), is_alike);
  std::erase_if(diagnosis->collateral, is_alike);
  // None of them is the first: the report shows the lowest.
  for (int& rank : diagnosis->alike) {
    if (rank < diagnosis->cause) std::swap(rank, diagnosis->cause);
  }
}

}  // namespace hvd::launch
