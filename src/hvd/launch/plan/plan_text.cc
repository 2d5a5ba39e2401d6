// SPDX-License-Identifier: Apache-2.0
// A plan for people and for programs.
#include <nlohmann/json.hpp>

#include "hvd/launch/cli/shell_words.h"
#include "hvd/launch/plan/plan.h"

namespace hvd::launch {

std::string Describe(const Plan& plan) {
  std::string text = fmt::format("program  {}\nargv     {}\n", plan.program, Quoted(plan.arguments));
  for (const Slot& slot : plan.slots) {
    text += fmt::format("rank {}   host {}, local rank {} of {}, cross rank {} of {}\n", slot.rank, slot.host,
                        slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size);
  }
  return text;
}

std::string DescribeAsJson(const Plan& plan) {
  nlohmann::ordered_json json;
  json["program"] = plan.program;
  json["argv"] = plan.arguments;
  json["ranks"] = nlohmann::ordered_json::array();
  for (const Slot& slot : plan.slots) {
    json["ranks"].push_back({{"rank", slot.rank},
                             {"host", slot.host},
                             {"local_rank", slot.local_rank},
                             {"local_size", slot.local_size},
                             {"cross_rank", slot.cross_rank},
                             {"cross_size", slot.cross_size}});
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launch
