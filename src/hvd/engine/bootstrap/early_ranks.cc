// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/early_ranks.h"

#include <algorithm>

#include "hvd/base/log.h"
#include "hvd/engine/bootstrap/rendezvous_point.h"

namespace hvd::engine::bootstrap {

bool MayBeLeftOver(const Config& config, const RankDescriptor& rank0, const RankDescriptor& card) {
  // Launchers draw a name or a token for each run.
  const bool named = (card.trust != "none" && card.trust != "insecure") || IsLocal(config.rendezvous_addr);
  // Durations, because the clocks of machines differ.
  const Duration age = topology::AgeOf(rank0.process);
  return !named && age > Duration(0) && std::chrono::milliseconds(card.waited_ms) > age;
}

Duration PatienceForSuccessors(const RankDescriptor& rank0) {
  constexpr Duration kLeast = std::chrono::seconds(1);
  constexpr Duration kMost = std::chrono::seconds(10);
  // As long as rank 0 itself has needed.
  return std::clamp(topology::AgeOf(rank0.process), kLeast, kMost);
}

void WarnOfEarlyRank(const RankDescriptor& rank0, Rank rank, const RankDescriptor& card) {
  log::Warning(
      "{} waited {:.1f} s and was there before {} was started: if it is left over from an earlier run, the results "
      "have its values. End it, or start ranks with horovodrun or with a HOROVOD_TOKEN_FILE of their own",
      NameOf(rank, card), static_cast<double>(card.waited_ms) / 1000, NameOf(0, rank0));
}

}  // namespace hvd::engine::bootstrap
