// SPDX-License-Identifier: Apache-2.0
#pragma once
// The library's settings as a rank will read them from its environment. Pure.

#include <map>
#include <string>
#include <string_view>

#include "hvd/base/config.h"
#include "hvd/launch/plan/environment.h"

namespace hvd::launch {

// Variables of other launchers are left out: the rank may not use the library at all.
inline Result<Config> RankConfig(const Environment& environment) {
  std::map<std::string, std::string> values;
  return ConfigFrom([&](const char* name) -> const char* {
    if (!std::string_view(name).starts_with("HOROVOD_")) return nullptr;
    const auto value = environment.Get(name);
    return value ? values.insert_or_assign(name, *value).first->second.c_str() : nullptr;
  });
}

}  // namespace hvd::launch
