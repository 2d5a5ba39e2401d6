// SPDX-License-Identifier: Apache-2.0
#pragma once
// Log lines in Horovod's form: "[time: L file:line] [rank]: text". INFO and below go to stdout, the rest to stderr.
//
// Thread safety: all functions may be called from any thread. One line is one write.

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace hvd::log {

enum class Level : int { kTrace, kDebug, kInfo, kWarning, kError, kFatal };

// Takes "info", "WARNING", ...; an unknown word leaves the level as it is and returns false.
bool SetLevel(std::string_view name);
void SetRank(int rank);
void HideTime(bool hide);
bool Enabled(Level level);
void Write(Level level, std::string_view text);

template <typename... Args>
void Info(fmt::format_string<Args...> text, Args&&... args) {
  if (Enabled(Level::kInfo)) Write(Level::kInfo, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void Debug(fmt::format_string<Args...> text, Args&&... args) {
  if (Enabled(Level::kDebug)) Write(Level::kDebug, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void Warning(fmt::format_string<Args...> text, Args&&... args) {
  if (Enabled(Level::kWarning)) Write(Level::kWarning, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void Error(fmt::format_string<Args...> text, Args&&... args) {
  if (Enabled(Level::kError)) Write(Level::kError, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace hvd::log
