// SPDX-License-Identifier: Apache-2.0
#include "hvd/tune/search.h"

#include <algorithm>
#include <utility>

namespace hvd::tune {
namespace {

Point StartOf(const std::vector<Axis>& axes) {
  Point point;
  for (const Axis& axis : axes) point.push_back(axis.start);
  return point;
}

}  // namespace

Search::Search(SearchOptions options)
    : options_(std::move(options)), point_(StartOf(options_.axes)), best_{point_}, start_{point_} {}

void Search::Fix(size_t axis) { options_.axes[axis] = Axis{options_.axes[axis].start}; }

void Search::Report(double score) {
  if (finished()) return;
  ++samples_;
  if (stage_ == Stage::kDuel) return ReportDuel(score);
  if (stage_ == Stage::kStart) {
    best_.score = start_.score = score;
    if (options_.max_samples < kLeastSamples) return KeepStart();
    stage_ = Stage::kExploration;
    return BeginAxis(0);
  }
  search_->Report({point_[axis_], score});
  const AxisSearch::Measured best = search_->Best();
  best_.point[axis_] = best.value;
  best_.score = best.score;
  --axis_samples_;
  Explore();
}

void Search::BeginAxis(size_t axis) {
  const auto& axes = options_.axes;
  axis_ = axis;
  while (axis_ < axes.size() && axes[axis_].fixed()) ++axis_;
  if (axis_ == axes.size()) return BeginDuel();
  search_.emplace(axes[axis_], AxisSearch::Measured{best_.point[axis_], best_.score}, options_.noise);
  // What the parameters after it need is kept for them, but one at least is this one's.
  const int left = options_.max_samples - static_cast<int>(Duel::kSamples) - samples_;
  int later = 0;
  for (size_t i = axis_ + 1; i < axes.size(); ++i) later += static_cast<int>(axes[i].first.size());
  axis_samples_ = std::min(left, std::max(left - later, 1));
  Explore();
}

void Search::Explore() {
  if (samples_ + static_cast<int>(Duel::kSamples) >= options_.max_samples) return BeginDuel();
  const auto next = axis_samples_ > 0 ? search_->Next() : std::nullopt;
  if (!next) return BeginAxis(axis_ + 1);
  point_ = best_.point;
  point_[axis_] = *next;
}

void Search::BeginDuel() {
  if (best_.point == start_.point) return KeepStart();
  stage_ = Stage::kDuel;
  point_ = start_.point;
}

void Search::ReportDuel(double score) {
  duel_.Report(score);
  point_ = duel_.challenges() ? best_.point : start_.point;
  if (!duel_.over()) return;
  start_.score = duel_.holder();
  best_.score = duel_.challenger();
  if (!duel_.won()) return KeepStart();
  stage_ = Stage::kFinished;
  point_ = best_.point;
}

void Search::KeepStart() {
  stage_ = Stage::kFinished;
  best_ = start_;
  point_ = start_.point;
}

}  // namespace hvd::tune
