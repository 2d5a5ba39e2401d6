// SPDX-License-Identifier: Apache-2.0
// HOROVOD_AUTOTUNE: rank 0 measures the global process set and changes what its own sequencers fuse. Nobody else reads
// the threshold, so no rank has to be told.
#include "hvd/engine/engine.h"
#include "hvd/tune/tuner.h"

namespace hvd::engine {

void Engine::StartTuning() {
  const Config& config = options_.config;
  const Layout& layout = world_.layout;
  if (!config.autotune || layout.rank != 0) return;
  tune::TunerOptions options;
  options.search.start = world_.settings.fusion_threshold;
  options.search.max_samples = config.autotune_max_samples;
  options.search.noise = config.autotune_noise;
  options.search.fixed = config.fusion_threshold_given || layout.size == 1;
  options.warmup_samples = config.autotune_warmup_samples;
  options.steps_per_sample = config.autotune_steps_per_sample;
  options.setting.hierarchical_allreduce = layout.cross_size > 1 && layout.local_size > 1;
  options.setting.cache_enabled = world_.settings.cache_capacity > 0;
  tuner_ = std::make_unique<tune::Tuner>(options, std::move(world_.tune_log));
}

void Engine::Tune(const Operation& op, const Error& error) {
  if (error.code != Code::kOk || op.stands_in || op.set->id() != 0 || op.work.op != OpKind::kAllreduce) return;
  tuner_->OnReduced(op.request.name, op.input_bytes, world_.loop->Now(), counters().fusion_batches.load());
  if (const int64_t wanted = tuner_->threshold(); wanted != fusion_threshold_.load(std::memory_order_relaxed)) {
    fusion_threshold_.store(wanted, std::memory_order_relaxed);
    for (ProcessSet* set : sets_) set->SetFusionThreshold(wanted);
  }
  if (tuner_->finished()) tuner_.reset();
}

}  // namespace hvd::engine
