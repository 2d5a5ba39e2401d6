// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decides what a process set does next: collects requests and ready marks of all members, checks that they agree,
// remembers agreed plans, fuses what is ready together, and appends the outcome to the log. One member (the lowest
// rank) runs it.
//
// Pure: no threads, no sockets, no clock; a function of the order of calls.
// Thread safety: none; call with the progress token.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hvd/controller/plan.h"

namespace hvd::controller {

struct SequencerOptions {
  int process_set = 0;
  std::vector<Rank> members;  // sorted global ranks
  int64_t cache_capacity = 1024;
  int64_t fusion_threshold = 128 << 20;
  bool join_extended = false;  // operations other than allreduce go on while some members have joined
};

class Sequencer {
 public:
  explicit Sequencer(SequencerOptions options);
  ~Sequencer();

  // A member describes an operation in full. If the name has a cached plan with an equal signature this counts as
  // OnReady; with a different one the plan is forgotten first. A join: from now on the member counts as having asked
  // for everything, until all have joined.
  void OnRequest(int member, Request request);
  // A member wants a known plan again. A uid that is not cached (forgotten meanwhile) is ignored: the member will see
  // kForget in the log and send a request.
  void OnReady(int member, uint64_t uid, int64_t first_dim);
  // The entries that the calls so far produced, in log order; fused as far as they are ready. Clears.
  std::vector<LogEntry> TakeLog();

  // Whether TakeLog would give executions only, each of which may share an entry with others, of at most so many bytes
  // together. Nothing is lost when such wait for more of their kind.
  bool HasOnlySmall(int64_t bytes) const;

  // From now on; may change at any time, since nobody else decides what is fused.
  void SetFusionThreshold(int64_t bytes);

  // Names that some members asked for and others have not, with the members missing. For reports: copies every name.
  struct Waiting {
    std::string name;
    const Signature* signature;  // some member's, until the next call; nullptr for a join
    std::vector<int> missing;
  };
  std::vector<Waiting> Pending() const;
  // The members that are missing in any of Pending; costs nothing, so it may be asked before every sleep.
  std::vector<int> Awaited() const;
  // Whether Pending has nothing; costs nothing.
  bool idle() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hvd::controller
