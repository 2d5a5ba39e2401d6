// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/algorithm_table.h"

#include <algorithm>
#include <map>

#include "hvd/algorithms/text.h"
#include "hvd/base/config.h"
#include "hvd/launch/plan.h"
#include "hvd/launch/this_machine.h"

namespace hvd::launch {
namespace {

// As the library reads it.
Result<Config> RankConfig(const Environment& environment) {
  std::map<std::string, std::string> values;
  return ConfigFrom([&](const char* name) -> const char* {
    const auto value = environment.Get(name);
    return value ? values.insert_or_assign(name, *value).first->second.c_str() : nullptr;
  });
}

Result<std::vector<int>> HostSizes(const Options& options, const FileReader& read) {
  std::string note;
  HVD_ASSIGN_OR_RETURN(const std::vector<Slot> slots, PlanSlots(options, read, IsThisMachine, &note));
  std::vector<int> sizes;
  for (const Slot& slot : slots) {
    if (slot.local_rank == 0) sizes.push_back(slot.local_size);
  }
  return sizes;
}

}  // namespace

Result<std::string> AlgorithmTable(const Options& options, const Environment& environment, const FileReader& read) {
  Plan plan;
  plan.environment = environment;
  HVD_RETURN_IF_ERROR(PlanEnvironment(options, read, &plan));
  HVD_ASSIGN_OR_RETURN(const Config config, RankConfig(plan.environment));
  const auto ranks = static_cast<int>(options.num_proc.value_or(algorithms::EagerLimits()[0].most_ranks));
  const auto limits = algorithms::LimitsFor(ranks, config.eager_limit, config.chunk_bytes);
  HVD_ASSIGN_OR_RETURN(const auto table, algorithms::Table::Make(limits, config.algorithms));
  if (!options.num_proc) return algorithms::Describe(table);
  HVD_ASSIGN_OR_RETURN(const std::vector<int> sizes, HostSizes(options, read));
  return algorithms::DescribeFor(table, sizes, !config.disable_shm);
}

}  // namespace hvd::launch
