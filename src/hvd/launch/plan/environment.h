// SPDX-License-Identifier: Apache-2.0
#pragma once
// A process's environment as a value: the launcher's own comes from main(), each rank's is a copy with changes.
//
// Thread safety: none; a value.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launch {

class Environment {
 public:
  Environment() = default;
  // As main() gets it: "NAME=value" strings up to a null pointer. Strings without '=' are dropped.
  explicit Environment(const char* const* lines);

  // One "NAME=value".
  void Add(std::string_view line);
  // An empty value counts as unset, as for the library.
  std::optional<std::string> Get(const std::string& name) const;
  void Set(const std::string& name, std::string value) { values_[name] = std::move(value); }
  void Unset(const std::string& name) { values_.erase(name); }
  // For execve.
  std::vector<std::string> Lines() const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace hvd::launch
