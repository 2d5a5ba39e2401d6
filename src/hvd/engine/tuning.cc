// SPDX-License-Identifier: Apache-2.0
// HOROVOD_AUTOTUNE: rank 0 measures the global process set and changes how the sets work that it sequences. What is
// fused it decides alone, so nobody has to be told of the threshold; everything else changes at a position of each
// set's log (process_set_tuned.cc).
#include <sched.h>

#include <algorithm>

#include "hvd/algorithms/change.h"
#include "hvd/engine/engine.h"
#include "hvd/engine/relax.h"
#include "hvd/tune/tuner.h"

namespace hvd::engine {
namespace {

// What rank 0 began with is no limit for ranks that began with more.
wire::Tuning TuningOf(const tune::Point& point, const tune::Point& start) {
  wire::Tuning tuning;
  tuning.chunk_percent = static_cast<int32_t>(point[tune::kChunk]);
  if (point[tune::kEager] != start[tune::kEager]) tuning.eager_bytes = point[tune::kEager];
  if (point[tune::kSpin] != start[tune::kSpin]) tuning.spin_us = point[tune::kSpin];
  return tuning;
}

// For the counters.
void NoteSpinning(int spins, trace::Counters* counters) {
  counters->in_force.spin_us.Set(static_cast<uint64_t>(spins / kSpinsPerMicrosecond));
}

void Note(const algorithms::Table& table, int ranks, int32_t chunk_percent, trace::Counters* counters) {
  auto& in_force = counters->in_force;
  in_force.chunk_percent.Set(static_cast<uint64_t>(chunk_percent));
  for (const algorithms::Choice& choice : table.For(OpKind::kAllreduce, algorithms::Scope::kHost, ranks)) {
    if (choice.algorithm == algorithms::Algorithm::kStaged) in_force.chunk_bytes.Set(choice.parameters.chunk);
    if (choice.algorithm == algorithms::Algorithm::kInline) in_force.eager_bytes.Set(choice.bytes.most);
  }
}

}  // namespace

algorithms::Scope Engine::GlobalScope() const {
  const Layout& layout = world_.layout;
  const int hosts = 1 + *std::ranges::max_element(layout.host_of);
  if (hosts == 1) return uses_shm() ? algorithms::Scope::kHost : algorithms::Scope::kHosts;
  return hosts < layout.size ? algorithms::Scope::kMixed : algorithms::Scope::kHosts;
}

void Engine::StartTuning() {
  const Config& config = options_.config;
  const Layout& layout = world_.layout;
  Note(table_, layout.local_size, wire::Tuning().chunk_percent, &recorder_.counters());
  NoteSpinning(spin_limit_, &recorder_.counters());
  if (!config.autotune || layout.rank != 0) return;
  const algorithms::Scope scope = GlobalScope();
  const bool alone = layout.size == 1;
  const bool by_table = !alone && !OperatesByMpi() && world_.settings.algorithms.empty();
  tune::Beginning beginning;
  beginning.fusion_threshold = world_.settings.fusion_threshold;
  beginning.eager_bytes = world_.settings.eager_bytes;
  beginning.spin_us = most_spins_ / kSpinsPerMicrosecond;
  beginning.fusion_fixed = config.fusion_threshold_given || alone;
  beginning.chunk_fixed = config.chunk_bytes_given || !by_table;
  beginning.eager_fixed = config.eager_limit >= 0 || !by_table || scope != algorithms::Scope::kHost;
  beginning.spin_fixed = config.spin_us >= 0 || alone || crowded_;
  tune::TunerOptions options;
  options.search.axes = tune::AxesFor(beginning);
  options.search.max_samples = config.autotune_max_samples;
  options.search.noise = config.autotune_noise;
  options.warmup_samples = config.autotune_warmup_samples;
  options.steps_per_sample = config.autotune_steps_per_sample;
  options.continues = config.autotune_continue;
  options.setting.hierarchical_allreduce = layout.cross_size > 1 && layout.local_size > 1;
  options.setting.cache_enabled = world_.settings.cache_capacity > 0;
  options.chunk_variables = [this, scope](int64_t percent) {
    const algorithms::Table tuned = table_.Tuned(static_cast<int>(percent), world_.settings.eager_bytes);
    const std::string text =
        fmt::format("'HOROVOD_ALGORITHMS={}'", algorithms::ChangesBetween(table_, tuned, scope, world_.layout.size));
    if (scope != algorithms::Scope::kHost) return text;
    return fmt::format("HOROVOD_CHUNK_BYTES={} {}", world_.settings.chunk_bytes * percent / 100, text);
  };
  tuner_ = std::make_unique<tune::Tuner>(options, std::move(world_.tune_log));
}

void Engine::Tune(const Operation& op, const Error& error) {
  if (error.code != Code::kOk || op.stands_in || op.set->id() != 0 || op.work.op != OpKind::kAllreduce) return;
  tuner_->OnReduced(op.request.name, op.input_bytes, world_.loop->Now(), counters().fusion_batches.load());
  ApplyTuner();
}

void Engine::TuneShort(const Shortcut& shortcut) {
  if (shortcut.process_set != 0 || shortcut.work.op != OpKind::kAllreduce) return;
  tuner_->OnReduced(shortcut.request.name, shortcut.work.payload.bytes(), world_.loop->Now(),
                    counters().fusion_batches.load());
  ApplyTuner();
}

void Engine::ApplyTuner() {
  const tune::Point& point = tuner_->point();
  if (const int64_t wanted = point[tune::kFusion]; wanted != fusion_threshold_.load(std::memory_order_relaxed)) {
    fusion_threshold_.store(wanted, std::memory_order_relaxed);
    for (ProcessSet* set : sets_) set->SetFusionThreshold(wanted);
  }
  const wire::Tuning wanted = TuningOf(point, tuner_->start());
  if (wanted != asked_.value_or(wire::Tuning())) AskFor(wanted);
  if (tuner_->finished()) tuner_.reset();
}

void Engine::AskFor(const wire::Tuning& tuning) {
  asked_ = tuning;
  for (ProcessSet* set : sets_) set->Tune(tuning);
}

void Engine::Retune(const wire::Tuning& tuning) {
  while (!TryToken()) {
    world_.loop->Wake();
    sched_yield();
  }
  AskFor(tuning);
  GiveToken();
}

algorithms::Table Engine::OnTuned(int set, const wire::Tuning& tuning) {
  if (set == 0) tuning_ = tuning;
  if (options_.config.spin_us < 0) {
    spin_limit_ = static_cast<int>(std::min<int64_t>(most_spins_, tuning.spin_us * kSpinsPerMicrosecond));
    NoteSpinning(spin_limit_, &recorder_.counters());
  }
  algorithms::Table table = table_.Tuned(tuning.chunk_percent, tuning.eager_bytes);
  if (set == 0) Note(table, world_.layout.local_size, tuning.chunk_percent, &recorder_.counters());
  return table;
}

}  // namespace hvd::engine
