// SPDX-License-Identifier: Apache-2.0
#include "hvd/tune/tuner.h"

#include <algorithm>
#include <utility>

#include "hvd/base/log.h"

namespace hvd::tune {
namespace {

// A program that never uses a name twice has no steps; its names must not fill the memory.
constexpr size_t kMostNames = 1 << 16;

std::string InMebibytes(int64_t bytes) { return fmt::format("{:g} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

Tuner::Tuner(const TunerOptions& options, CsvLog log)
    : options_(options), log_(std::move(log)), search_(options.search), warmups_left_(options.warmup_samples) {}

Tuner::~Tuner() {
  if (finished()) return;
  if (search_.samples() == 0) {
    log::Info(
        "Autotune: the job ended before the first sample was measured, which takes {} steps. "
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES and HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE make that fewer.",
        (options_.warmup_samples + 1) * kWindows * options_.steps_per_sample);
    return;
  }
  LogBest();
  log::Info(
      "Autotune: the job ended after {} of at most {} samples. The best so far, not compared with the start again, is "
      "a "
      "fusion threshold of {} with {:g} bytes per microsecond; the start's {} had {:g}.",
      search_.samples(), options_.search.max_samples, InMebibytes(search_.best().threshold), search_.best().score,
      InMebibytes(search_.start().threshold), search_.start().score);
}

void Tuner::BeginWindow(std::string_view name, Time now) {
  since_ = now;
  bytes_ = 0;
  times_.clear();
  times_.emplace(name, 1);
}

void Tuner::OnReduced(std::string_view name, size_t bytes, Time now, uint64_t batches) {
  if (finished()) return;
  if (!began_) {
    began_ = true;
    batches_before_ = batches;
    return BeginWindow(name, now);
  }
  bytes_ += static_cast<double>(bytes);
  const int times = ++times_[std::string(name)];
  if (times <= options_.steps_per_sample) {
    if (times_.size() > kMostNames) BeginWindow(name, now);
    return;
  }
  const std::chrono::duration<double, std::micro> elapsed = std::max(now - since_, Duration(1));
  windows_.push_back(bytes_ / elapsed.count());
  BeginWindow(name, now);
  if (windows_.size() == kWindows) EndSample(batches);
}

void Tuner::EndSample(uint64_t batches) {
  std::ranges::nth_element(windows_, windows_.begin() + kWindows / 2);
  const double score = windows_[kWindows / 2];
  windows_.clear();
  const bool fused = batches != std::exchange(batches_before_, batches);
  if (warmups_left_ > 0) {
    --warmups_left_;
    return;
  }
  log_.Write(options_.setting, threshold(), score);
  log::Info("Autotune: {:g} bytes per microsecond with a fusion threshold of {}.", score, InMebibytes(threshold()));
  search_.Report(score);
  // What is not fused under the highest threshold is not fused under any other.
  if (search_.samples() == 1 && !fused) {
    fuses_ = false;
    search_.KeepStart();
  }
  if (!finished()) return;
  LogBest();
  Tell();
}

void Tuner::Tell() const {
  const Search::Measured best = search_.best();
  const Search::Measured start = search_.start();
  const std::string ended =
      fmt::format("Autotune ended after {} sample{}: ", search_.samples(), search_.samples() == 1 ? "" : "s");
  if (best.threshold != start.threshold) {
    log::Info(
        "{}a fusion threshold of {} reduced {:g} bytes per microsecond, the start's {} only {:g} ({:+.0f} %). The job "
        "goes on with it. For the next one set HOROVOD_FUSION_THRESHOLD={} and leave autotuning off.",
        ended, InMebibytes(best.threshold), best.score, InMebibytes(start.threshold), start.score,
        100 * (best.score / start.score - 1), best.threshold);
    return;
  }
  const char* why = "nothing was reliably better";
  if (!fuses_) why = "no operation was fused, so that it makes no difference";
  if (options_.search.max_samples < Search::kLeastSamples) {
    why = "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES is below 6, which leaves nothing to try";
  }
  if (options_.search.fixed) why = "it was given, or there is one rank only, and nothing else is tuned";
  log::Info("{}the fusion threshold stays at {}, with {:g} bytes per microsecond: {}.", ended,
            InMebibytes(start.threshold), start.score, why);
}

}  // namespace hvd::tune
