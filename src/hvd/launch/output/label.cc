// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/output/label.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "hvd/base/suggest.h"

namespace hvd::launch {
namespace {

// Readable on dark and on light.
constexpr std::array<int, 10> kColors{36, 32, 33, 35, 34, 96, 92, 93, 95, 94};
const std::vector<std::string> kFieldNames{"rank", "local_rank", "host", "pid", "stream", "time"};

void Replace(std::string* text, const std::string& name, const std::string& value) {
  for (size_t at = 0; (at = text->find(name, at)) != std::string::npos; at += value.size()) {
    text->replace(at, name.size(), value);
  }
}

// As log lines have it.
std::string AsText(std::chrono::system_clock::time_point now) {
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(millis / 1000);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return fmt::format("{}.{:03}", text, millis % 1000);
}

}  // namespace

Result<LabelStyle> MakeLabelStyle(const std::optional<std::string>& given, bool timestamp) {
  LabelStyle style;
  if (given) {
    style.pattern = given->empty() ? "" : *given + " | ";
    for (size_t at = 0; (at = given->find('{', at)) != std::string::npos; ++at) {
      const size_t close = given->find('}', at);
      const std::string name = given->substr(at + 1, close == std::string::npos ? close : close - at - 1);
      if (close == std::string::npos || std::ranges::count(kFieldNames, name) == 0) {
        return Fail(Code::kInvalidArgument,
                    "--prefix '{}': expected one of {{rank}} {{local_rank}} {{host}} {{pid}} {{stream}} {{time}} at "
                    "'{{{}'{}",
                    *given, name, DidYouMean(name, kFieldNames));
      }
    }
  }
  if (timestamp) style.pattern = (given ? "{time} " : "{time}") + style.pattern;
  return style;
}

Label::Label(const LabelStyle& style, const Slot& slot, int pid, const char* stream) {
  std::string text = style.pattern;
  Replace(&text, "{rank}", fmt::format("{}", slot.rank));
  Replace(&text, "{local_rank}", fmt::format("{}", slot.local_rank));
  Replace(&text, "{host}", slot.host);
  Replace(&text, "{pid}", fmt::format("{}", pid));
  Replace(&text, "{stream}", stream);
  if (style.color && !text.empty()) {
    text = fmt::format("\033[{}m{}\033[0m", kColors[static_cast<size_t>(slot.rank) % kColors.size()], text);
  }
  constexpr std::string_view kTime = "{time}";
  const size_t at = text.find(kTime);
  has_time_ = at != std::string::npos;
  before_ = text.substr(0, at);
  if (has_time_) after_ = text.substr(at + kTime.size());
}

std::string Label::Text(std::chrono::system_clock::time_point now) const {
  return has_time_ ? before_ + AsText(now) + after_ : before_;
}

}  // namespace hvd::launch
