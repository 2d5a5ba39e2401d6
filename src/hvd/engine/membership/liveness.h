// SPDX-License-Identifier: Apache-2.0
#pragma once
// Silence: a peer that an operation waits for must turn its loop when asked to. Counts only while something waits for
// it, while a question is open and this rank itself ran on time, and not while the peer is being traced by a debugger.
// stall_inspector.h looks after peers that do turn their loop, and come to nothing.
//
// Thread safety: call with the progress token.

#include <map>

#include "hvd/base/clock.h"
#include "hvd/base/types.h"
#include "hvd/engine/membership/membership.h"

namespace hvd::engine {

class Liveness {
 public:
  Liveness(const World* world, const Config* config, ControlChannel* control, const SetTable* sets,
           Membership* membership);

  // Looks after whom operations wait for. Returns when to look again.
  Time Check(Time now);
  void OnPong(Rank rank) { ++pongs_[rank]; }

 private:
  struct Watch {
    uint64_t beat = 0;
    Time heard{};  // when the beat was last seen to change
    Time asked{};
    Time unanswered{};  // when it was first asked since then; none: it was not
  };
  uint64_t BeatOf(Rank rank) const;
  void Ask(Rank rank);
  bool IsTraced(Rank rank) const;

  const World* const world_;
  const Config* const config_;
  ControlChannel* const control_;
  const SetTable* const sets_;
  Membership* const membership_;
  std::map<Rank, Watch> watched_;
  std::map<Rank, uint64_t> pongs_;
  Time last_check_{};
};

}  // namespace hvd::engine
