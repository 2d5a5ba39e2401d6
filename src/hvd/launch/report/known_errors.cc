// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/report/known_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "known_errors_table.h"

namespace hvd::launch {
namespace {

struct KnownError {
  std::string text, meaning, action;
};

// Three lines each, and an empty one between two.
const std::vector<KnownError>& Table() {
  static const auto* const kTable = [] {
    auto* table = new std::vector<KnownError>;
    std::istringstream lines(kKnownErrors);
    KnownError one;
    while (std::getline(lines, one.text)) {
      if (one.text.empty()) continue;
      std::getline(lines, one.meaning);
      std::getline(lines, one.action);
      table->push_back(one);
    }
    return table;
  }();
  return *kTable;
}

// Code in Markdown is plain text on a terminal.
std::string Plain(std::string text) {
  std::erase(text, '`');
  return text;
}

}  // namespace

std::vector<std::string> LastError(const std::vector<std::string>& lines) {
  constexpr auto kBegins = [](const std::string& line) {
    return line.starts_with("Traceback (most recent call last)") || line.starts_with("terminate called");
  };
  auto at = std::find_if(lines.rbegin(), lines.rend(), kBegins).base();
  if (at == lines.begin()) {
    const auto full = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) { return !line.empty(); });
    return full == lines.rend() ? std::vector<std::string>() : std::vector{*full};
  }
  // Python indents the calls of a traceback, and C++ the text of an exception.
  if ((at - 1)->starts_with('T')) at = std::find_if(at, lines.end(), [](auto& line) { return !line.starts_with(' '); });
  return {at, lines.end()};
}

std::optional<std::string> ExplainError(const std::vector<std::string>& last_lines) {
  const std::vector<std::string> error = LastError(last_lines);
  for (auto line = error.rbegin(); line != error.rend(); ++line) {
    const auto found =
        std::ranges::find_if(Table(), [&](const KnownError& one) { return line->find(one.text) != std::string::npos; });
    if (found != Table().end()) return Plain(fmt::format("{} {}", found->meaning, found->action));
  }
  return std::nullopt;
}

}  // namespace hvd::launch
