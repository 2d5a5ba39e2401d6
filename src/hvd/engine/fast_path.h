// SPDX-License-Identifier: Apache-2.0
#pragma once
// Does a small operation that was done before on the caller's thread and in one go; see fast_path_cache.h.
//
// The caller holds the token from the mark to the end, so no other thread sees the set, the registry or the recorder
// half-way. It polls the peers' marks a bounded number of times, and does one reduction of bounded size. After that, or
// as soon as another thread needs the token or the registry, or the generation ends, or the marks disagree, it makes
// the ordinary operation that would have been at this position, and goes on with that. If this rank has reduced its
// part already, that operation runs, and is over when no peer stores into this rank's memory any more.
//
// Thread safety: Run and Await from any thread; Learn with the progress token.
// Lifetime: what the constructor is given outlives it.

#include "hvd/engine/autotuning.h"
#include "hvd/engine/engine_context.h"
#include "hvd/engine/fast_path_cache.h"
#include "hvd/engine/operations.h"
#include "hvd/engine/progress_token.h"
#include "hvd/engine/scheduler.h"

namespace hvd::engine {

// What a caller that waits for an operation gets. If the operation is over the caller owns it, and releases it by its
// handle. If not, `op` is nullptr, since a callback may have released it already.
struct Ran {
  Operation* op = nullptr;
  Handle handle = 0;
};

class FastPath {
 public:
  enum class Outcome {
    kNone,  // nothing happened: the operation has to be submitted
    kDone,  // it succeeded, and there is nothing to release; `shape`, if not nullptr, is the result's
    kRan,   // `ran` is what Await returns
  };

  FastPath(const EngineContext& context, ProgressToken* token, Scheduler* scheduler, Operations* operations,
           Autotuning* tuning);

  // `wait_s`: for how many seconds to wait at most; negative: without limit.
  Outcome Run(const RequestView& view, double wait_s, Ran* ran, Shape* shape);
  // Remembers an operation that is over, if the next one could take the fast path.
  void Learn(uint64_t prepared, int process_set, const Operation& op) { cache_.Learn(prepared, process_set, op); }
  // Waits for an operation whose callback the caller holds back.
  Ran Await(Operation* op, Time until);

 private:
  class Pins;

  // With the token. nullptr: the operation cannot take the fast path.
  FastPathEntry* Begin(const RequestView& view, ProcessSet** set, Pins* pins);
  // Polls until the operation is over or cannot go on here.
  ProcessSet::FastPathStep StepUntilOver(ProcessSet* set, FastPathEntry* entry);
  // Whether another thread needs what this one holds, or the generation ends.
  bool MustHurry() const;
  Operation* MakeOrdinary(const FastPathEntry& entry, const RequestView& view, ProcessSet* set);

  const EngineContext context_;
  ProgressToken* const token_;
  Scheduler* const scheduler_;
  Operations* const operations_;
  Autotuning* const tuning_;
  FastPathCache cache_;
};

}  // namespace hvd::engine
