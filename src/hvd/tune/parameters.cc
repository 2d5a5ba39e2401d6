// SPDX-License-Identifier: Apache-2.0
#include "hvd/tune/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

namespace hvd::tune {
namespace {

constexpr int64_t kKilo = 1 << 10;
constexpr int64_t kMega = 1 << 20;

// Below the first hardly anything is fused; above the last nothing changes any more.
constexpr int kLeastPower = 16;
constexpr int kMostPower = 27;

Axis FusionAxis(int64_t start) {
  Axis axis{.start = start, .first = {kMega, 8 * kMega, 64 * kMega, 64 * kKilo}, .least = 1 << kLeastPower};
  for (int half = 2 * kLeastPower; half <= 2 * kMostPower; ++half) {
    constexpr int64_t kPage = 4096;
    axis.grid.push_back(std::llround(std::exp2(half / 2.0) / kPage) * kPage);
  }
  return axis;
}

// Staging areas and slots stay as large as they were made. So chunks get at most twice as large, which leaves two in an
// area, and the eager limit only smaller; as does the spinning, since a rank that has to share its core must not spin
// longer than it wants to.
constexpr int64_t kPercents[] = {50, 200, 25};
constexpr int64_t kLeastEager = kKilo;
constexpr int64_t kSpins[] = {100, 10};

std::string Text(size_t parameter, int64_t value) {
  switch (parameter) {
    case kFusion:
      return fmt::format("a fusion threshold of {:g} MiB", static_cast<double>(value) / kMega);
    case kChunk:
      return fmt::format("chunks of {} %", value);
    case kEager:
      return fmt::format("an eager limit of {:g} KiB", static_cast<double>(value) / kKilo);
    default:
      return fmt::format("{} us of spinning", value);
  }
}

std::string Listed(const std::vector<std::string>& texts) {
  std::string list;
  for (size_t i = 0; i < texts.size(); ++i) {
    list += fmt::format("{}{}", i == 0 ? "" : i + 1 == texts.size() ? " and " : ", ", texts[i]);
  }
  return list;
}

}  // namespace

std::vector<Axis> AxesFor(const Beginning& beginning) {
  std::vector<Axis> axes(kParameters);
  axes[kFusion] = beginning.fusion_fixed ? Axis{beginning.fusion_threshold} : FusionAxis(beginning.fusion_threshold);
  axes[kChunk] = {.start = 100};
  if (!beginning.chunk_fixed) axes[kChunk].first.assign(std::begin(kPercents), std::end(kPercents));
  axes[kEager] = {.start = beginning.eager_bytes};
  for (const int64_t divisor : {4, 16}) {
    const int64_t value = beginning.eager_bytes / divisor;
    if (!beginning.eager_fixed && value >= kLeastEager) axes[kEager].first.push_back(value);
  }
  axes[kSpin] = {.start = beginning.spin_us};
  for (const int64_t value : kSpins) {
    if (!beginning.spin_fixed && value < beginning.spin_us) axes[kSpin].first.push_back(value);
  }
  return axes;
}

std::string Describe(const Point& point, const Point& other) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < point.size(); ++i) {
    if (point == other || point[i] != other[i]) texts.push_back(Text(i, point[i]));
  }
  return Listed(texts);
}

std::string VariablesFor(const Point& point, const Point& start, const std::function<std::string(int64_t)>& chunks) {
  std::vector<std::string> texts;
  if (point[kFusion] != start[kFusion]) texts.push_back(fmt::format("HOROVOD_FUSION_THRESHOLD={}", point[kFusion]));
  if (point[kChunk] != start[kChunk]) texts.push_back(chunks(point[kChunk]));
  if (point[kEager] != start[kEager]) texts.push_back(fmt::format("HOROVOD_EAGER_LIMIT={}", point[kEager]));
  if (point[kSpin] != start[kSpin]) texts.push_back(fmt::format("HOROVOD_SPIN_US={}", point[kSpin]));
  return fmt::format("{}", fmt::join(texts, " "));
}

}  // namespace hvd::tune
