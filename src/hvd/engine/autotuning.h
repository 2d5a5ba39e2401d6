// SPDX-License-Identifier: Apache-2.0
#pragma once
// HOROVOD_AUTOTUNE: rank 0 measures the global process set and changes how the sets work that it sequences. Rank 0
// alone decides what is fused, so no rank has to learn of the threshold; everything else changes at a position of each
// set's log (process_set_tuned.cc). Every rank applies here what the logs say.
//
// Thread safety: fusion_threshold and active from any thread; the rest with the progress token.
// Lifetime: what the constructor is given outlives it.

#include <atomic>
#include <memory>
#include <optional>

#include "hvd/engine/engine_context.h"
#include "hvd/engine/process_set/process_set_factory.h"
#include "hvd/engine/scheduler.h"
#include "hvd/wire/messages.h"

namespace hvd::tune {
class Tuner;
}

namespace hvd::engine {

class Autotuning {
 public:
  Autotuning(const EngineContext& context, const ProcessSetFactory* factory, Scheduler* scheduler);
  ~Autotuning();

  // Call once, when the table of algorithms is loaded.
  void Start();
  int64_t fusion_threshold() const { return fusion_threshold_.load(std::memory_order_relaxed); }

  // An operation is over.
  void OnComplete(const Operation& op, const Error& error) {
    if (tuner_ != nullptr) Measure(op, error);
  }
  // An operation that took the fast path is over.
  void OnComplete(const FastPathEntry& entry) {
    if (tuner_ != nullptr) Measure(entry);
  }
  // Has the sets that this rank sequences log these values.
  void Request(const wire::Tuning& tuning);
  // A set is new: it begins with what the global set's log says.
  void Prepare(ProcessSet* set) const;
  // The set's log says these values: applies what belongs to this rank, and returns the sizes by which data moves.
  algorithms::Table Apply(int set, const wire::Tuning& tuning);

 private:
  void Measure(const Operation& op, const Error& error);
  void Measure(const FastPathEntry& entry);
  // Applies what the tuner wants next.
  void ApplyTuner();
  algorithms::Scope GlobalScope() const;

  const EngineContext context_;
  const ProcessSetFactory* const factory_;
  Scheduler* const scheduler_;
  std::atomic<int64_t> fusion_threshold_;  // bytes up to which this rank's sequencers fuse
  std::unique_ptr<tune::Tuner> tuner_;     // nullptr: nothing is tuned, or not any more
  wire::Tuning tuning_;                    // as the global set's log says
  std::optional<wire::Tuning> requested_;  // what this rank requested last
};

}  // namespace hvd::engine
