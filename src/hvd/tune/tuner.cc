// SPDX-License-Identifier: Apache-2.0
#include "hvd/tune/tuner.h"

#include <algorithm>
#include <utility>

#include "hvd/base/log.h"

namespace hvd::tune {
namespace {

// A program that never uses a name twice has no steps; its names must not fill the memory.
constexpr size_t kMostNames = 1 << 16;

}  // namespace

Tuner::Tuner(const TunerOptions& options, CsvLog log)
    : options_(options), log_(std::move(log)), search_(options.search), warmups_left_(options.warmup_samples) {}

Tuner::~Tuner() {
  if (search_.finished()) return;
  if (search_.samples() == 0) {
    log::Info(
        "Autotune: the job ended before the first sample was measured, which takes {} steps. "
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES and HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE make that fewer.",
        (options_.warmup_samples + 1) * kWindows * options_.steps_per_sample);
    return;
  }
  const Search::Measured& best = search_.best();
  const Search::Measured& start = search_.start();
  log_.Write(options_.setting, best);
  log::Info(
      "Autotune: the job ended after {} of at most {} samples. The best so far, not compared with the start again, is "
      "{} with {:g} bytes per microsecond; the start had {:g}.",
      search_.samples(), options_.search.max_samples, Describe(best.point, start.point), best.score, start.score);
}

void Tuner::BeginWindow(std::string_view name, Time now) {
  since_ = now;
  bytes_ = 0;
  times_.clear();
  times_.emplace(name, 1);
}

void Tuner::OnReduced(std::string_view name, size_t bytes, Time now, uint64_t batches) {
  if (finished() || (rest_ > 0 && --rest_ > 0)) return;
  if (challenger_ && challenger_->resting()) {
    if (!challenger_->Begin()) return challenger_.reset();
    began_ = false;
  }
  if (!began_) {
    began_ = true;
    batches_before_ = batches;
    return BeginWindow(name, now);
  }
  ++operations_;
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
  const uint64_t operations = std::exchange(operations_, 0);
  const bool fused = batches != std::exchange(batches_before_, batches);
  if (warmups_left_ > 0) {
    --warmups_left_;
    return;
  }
  log_.Write(options_.setting, {point(), score});
  log::Info("Autotune: {:g} bytes per microsecond with {}.", score, Describe(point(), point()));
  if (challenger_) {
    EndChallenge(score);
  } else {
    // What is not fused under the highest threshold is not fused under any other.
    if (search_.samples() == 0 && !fused) {
      fuses_ = false;
      search_.Fix(kFusion);
    }
    search_.Report(score);
    if (search_.finished()) EndSearch();
  }
  if (challenger_ && challenger_->resting()) rest_ = operations * static_cast<uint64_t>(options_.rest_samples);
}

void Tuner::EndSearch() {
  log_.Write(options_.setting, search_.best());
  Tell();
  if (options_.continues) challenger_.emplace(search_.axes(), search_.point());
}

void Tuner::EndChallenge(double score) {
  const Point before = challenger_->choice();
  challenger_->Report(score);
  if (!challenger_->resting()) return;
  const Duel& duel = challenger_->duel();
  const bool won = challenger_->won();
  log_.Write(options_.setting, {challenger_->choice(), won ? duel.challenger() : duel.holder()});
  const std::string tried = Describe(challenger_->tried(), before);
  if (!won) return log::Info("Autotune goes on: {} was not reliably better.", tried);
  log::Info(
      "Autotune goes on: with {} {:g} bytes per microsecond were reduced, without {:g}. The job goes on with it. "
      "For the next one set {}.",
      tried, duel.challenger(), duel.holder(),
      VariablesFor(challenger_->choice(), search_.start().point, options_.chunk_variables));
}

const char* Tuner::WhyTheStartStays() const {
  if (options_.search.max_samples < Search::kLeastSamples) {
    return "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES is below 6, which leaves nothing to try";
  }
  const auto& axes = search_.axes();
  if (search_.samples() > 1) return "nothing was reliably better";
  const bool fused = fuses_ || options_.search.axes[kFusion].fixed();
  return std::ranges::all_of(axes, &Axis::fixed) && !fused
             ? "no operation was fused, so that the threshold makes no difference, and nothing else is tuned"
             : "all of it was given, or there is one rank only";
}

void Tuner::Tell() const {
  const Search::Measured& best = search_.best();
  const Search::Measured& start = search_.start();
  const std::string ended =
      fmt::format("Autotune ended after {} sample{}: ", search_.samples(), search_.samples() == 1 ? "" : "s");
  if (best.point == start.point) {
    log::Info("{}the job stays with what it began with, {}, and {:g} bytes per microsecond: {}.", ended,
              Describe(start.point, start.point), start.score, WhyTheStartStays());
    return;
  }
  log::Info(
      "{}with {} {:g} bytes per microsecond were reduced; with what the job began with, {}, only {:g} ({:+.0f} %). "
      "The job goes on with it. For the next one set {} and leave autotuning off.",
      ended, Describe(best.point, start.point), best.score, Describe(start.point, best.point), start.score,
      100 * (best.score / start.score - 1), VariablesFor(best.point, start.point, options_.chunk_variables));
}

}  // namespace hvd::tune
