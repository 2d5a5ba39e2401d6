// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/autotuning.h"

#include <algorithm>

#include "hvd/algorithms/change.h"
#include "hvd/engine/fast_path_cache.h"
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
  for (const algorithms::Choice& choice : table.For(OpKind::kAllreduce, algorithms::Scope::kShm, ranks)) {
    if (choice.algorithm == algorithms::Algorithm::kStaged) in_force.chunk_bytes.Set(choice.parameters.chunk);
    if (choice.algorithm == algorithms::Algorithm::kInline) in_force.eager_bytes.Set(choice.bytes.most);
  }
}

}  // namespace

Autotuning::Autotuning(const EngineContext& context, const ProcessSetFactory* factory, Scheduler* scheduler)
    : context_(context),
      factory_(factory),
      scheduler_(scheduler),
      fusion_threshold_(context.world->settings.fusion_threshold) {}

Autotuning::~Autotuning() = default;

algorithms::Scope Autotuning::GlobalScope() const {
  const Layout& layout = context_.world->layout;
  const int hosts = 1 + *std::ranges::max_element(layout.host_of);
  if (hosts == 1) return context_.world->window != nullptr ? algorithms::Scope::kShm : algorithms::Scope::kNetwork;
  return hosts < layout.size ? algorithms::Scope::kMixed : algorithms::Scope::kNetwork;
}

void Autotuning::Start() {
  const Config& config = *context_.config;
  World& world = *context_.world;
  const Layout& layout = world.layout;
  Note(factory_->table(), layout.local_size, wire::Tuning().chunk_percent, &context_.recorder->counters());
  NoteSpinning(scheduler_->spin_limit(), &context_.recorder->counters());
  if (!config.autotune || layout.rank != 0) return;
  const algorithms::Scope scope = GlobalScope();
  const bool alone = layout.size == 1;
  const bool by_table = !alone && !factory_->OperatesByMpi() && world.settings.algorithms.empty();
  tune::Beginning beginning;
  beginning.fusion_threshold = world.settings.fusion_threshold;
  beginning.eager_bytes = world.settings.eager_bytes;
  beginning.spin_us = scheduler_->first_spin_limit() / kSpinsPerMicrosecond;
  beginning.fusion_fixed = config.fusion_threshold_given || alone;
  beginning.chunk_fixed = config.chunk_bytes_given || !by_table;
  beginning.eager_fixed = config.eager_limit >= 0 || !by_table || scope != algorithms::Scope::kShm;
  beginning.spin_fixed = config.spin_us >= 0 || alone || scheduler_->crowded();
  tune::TunerOptions options;
  options.search.axes = tune::AxesFor(beginning);
  options.search.max_samples = config.autotune_max_samples;
  options.search.noise = config.autotune_noise;
  options.warmup_samples = config.autotune_warmup_samples;
  options.steps_per_sample = config.autotune_steps_per_sample;
  options.continues = config.autotune_continue;
  options.setting.hierarchical_allreduce = layout.cross_size > 1 && layout.local_size > 1;
  options.setting.cache_enabled = world.settings.cache_capacity > 0;
  options.chunk_variables = [this, &world, scope](int64_t percent) {
    const algorithms::Table tuned = factory_->table().Tuned(static_cast<int>(percent), world.settings.eager_bytes);
    const std::string text = fmt::format(
        "'HOROVOD_ALGORITHMS={}'", algorithms::ChangesBetween(factory_->table(), tuned, scope, world.layout.size));
    if (scope != algorithms::Scope::kShm) return text;
    return fmt::format("HOROVOD_CHUNK_BYTES={} {}", world.settings.chunk_bytes * percent / 100, text);
  };
  tuner_ = std::make_unique<tune::Tuner>(options, std::move(world.tune_log));
}

void Autotuning::Measure(const Operation& op, const Error& error) {
  if (error.code != Code::kOk || op.stands_in || op.set->id() != 0 || op.work.op != OpKind::kAllreduce) return;
  tuner_->OnReduced(op.request.name, op.input_bytes, context_.world->loop->Now(),
                    context_.recorder->counters().fusion_batches.load());
  ApplyTuner();
}

void Autotuning::Measure(const FastPathEntry& entry) {
  if (entry.process_set != 0 || entry.work.op != OpKind::kAllreduce) return;
  tuner_->OnReduced(entry.request.name, entry.work.payload.bytes(), context_.world->loop->Now(),
                    context_.recorder->counters().fusion_batches.load());
  ApplyTuner();
}

void Autotuning::ApplyTuner() {
  const tune::Point& point = tuner_->point();
  if (const int64_t wanted = point[tune::kFusion]; wanted != fusion_threshold_.load(std::memory_order_relaxed)) {
    fusion_threshold_.store(wanted, std::memory_order_relaxed);
    for (ProcessSet* set : *context_.sets) set->SetFusionThreshold(wanted);
  }
  const wire::Tuning wanted = TuningOf(point, tuner_->start());
  if (wanted != requested_.value_or(wire::Tuning())) Request(wanted);
  if (tuner_->finished()) tuner_.reset();
}

void Autotuning::Request(const wire::Tuning& tuning) {
  requested_ = tuning;
  for (ProcessSet* set : *context_.sets) set->Tune(tuning);
}

void Autotuning::Prepare(ProcessSet* set) const {
  // The global set's log has said so on every rank before it said that this set is made.
  if (tuning_ != wire::Tuning()) {
    set->BeginTuned(factory_->table().Tuned(tuning_.chunk_percent, tuning_.eager_bytes));
  }
  if (requested_ && *requested_ != tuning_) set->Tune(*requested_);
}

algorithms::Table Autotuning::Apply(int set, const wire::Tuning& tuning) {
  if (set == 0) tuning_ = tuning;
  if (context_.config->spin_us < 0) {
    const int64_t spins = tuning.spin_us * kSpinsPerMicrosecond;
    scheduler_->SetSpinLimit(static_cast<int>(std::min<int64_t>(scheduler_->first_spin_limit(), spins)));
    NoteSpinning(scheduler_->spin_limit(), &context_.recorder->counters());
  }
  algorithms::Table table = factory_->table().Tuned(tuning.chunk_percent, tuning.eager_bytes);
  if (set == 0) Note(table, context_.world->layout.local_size, tuning.chunk_percent, &context_.recorder->counters());
  return table;
}

}  // namespace hvd::engine
