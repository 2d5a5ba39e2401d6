// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/environment.h"

namespace hvd::launch {

Environment::Environment(const char* const* lines) {
  for (; lines != nullptr && *lines != nullptr; ++lines) Add(*lines);
}

void Environment::Add(std::string_view line) {
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos || equals == 0) return;
  values_.emplace(line.substr(0, equals), line.substr(equals + 1));
}

std::optional<std::string> Environment::Get(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::vector<std::string> Environment::Lines() const {
  std::vector<std::string> lines;
  lines.reserve(values_.size());
  for (const auto& [name, value] : values_) lines.push_back(name + "=" + value);
  return lines;
}

}  // namespace hvd::launch
