// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "hvd/launch/cli/flags.h"
#include "hvd/launch/cli/parse.h"

namespace hvd::launch {
namespace {

using Json = nlohmann::ordered_json;

Json TextOrNull(const char* text) { return text == nullptr ? Json(nullptr) : Json(text); }

const char* StateOf(const Flag& flag) {
  if (flag.built == Built::kNotYet) return "refused";
  return flag.built == Built::kNoEffect ? "no effect" : "works";
}

}  // namespace

std::string FlagsJson() {
  Json sections = Json::array();
  for (const Section& section : Sections()) {
    Json flags = Json::array();
    for (const Flag& flag : section.flags) {
      flags.push_back({{"names", flag.names},
                       {"value", TextOrNull(flag.value)},
                       {"help", TextOrNull(flag.help)},
                       {"choices", TextOrNull(flag.choices)},
                       {"key", TextOrNull(flag.key)},
                       {"variable", TextOrNull(flag.variable)},
                       {"state", StateOf(flag)},
                       {"why", flag.built == Built::kYes ? Json(nullptr) : Json(Why(flag))}});
    }
    sections.push_back({{"title", section.title}, {"flags", std::move(flags)}});
  }
  return sections.dump(2) + "\n";
}

}  // namespace hvd::launch
