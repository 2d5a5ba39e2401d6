// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/cli/algorithm_table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hvd/algorithms/table_text.h"
#include "hvd/launch/plan/plan.h"
#include "hvd/launch/plan/rank_config.h"
#include "hvd/launch/plan/this_machine.h"

namespace hvd::launch {
namespace {

Result<std::vector<int>> HostSizes(const Options& options, const FileReader& read) {
  std::string note;
  HVD_ASSIGN_OR_RETURN(const std::vector<Slot> slots, PlanSlots(options, read, IsThisMachine, &note));
  std::vector<int> sizes;
  for (const Slot& slot : slots) {
    if (slot.local_rank == 0) sizes.push_back(slot.local_size);
  }
  return sizes;
}

using Json = nlohmann::ordered_json;

// `most_bytes` null: no limit.
Json LineJson(OpKind op, const algorithms::Range& bytes, algorithms::Algorithm algorithm,
              const algorithms::Parameters& parameters) {
  Json json{{"operation", algorithms::WordFor(op)}, {"least_bytes", bytes.least}, {"most_bytes", nullptr}};
  if (bytes.most != algorithms::kNoLimit) json["most_bytes"] = bytes.most;
  json["algorithm"] = algorithms::WordFor(algorithm);
  if (parameters.chunk != 0) json["chunk"] = parameters.chunk;
  if (parameters.slice != 0) json["slice"] = parameters.slice;
  if (parameters.flight != 0) json["flight"] = parameters.flight;
  return json;
}

Json TableJson(const algorithms::Table& table) {
  Json json{{"lines", Json::array()}};
  for (const algorithms::Line& line : table.lines()) {
    Json& added = json["lines"].emplace_back(LineJson(line.op, line.bytes, line.algorithm, line.parameters));
    added["scope"] = algorithms::WordFor(line.scope);
    added["bytes_to_all_others"] = line.measure == algorithms::Measure::kSent;
    added["least_members"] = line.members.least;
    added["most_members"] = nullptr;
    if (line.members.most != algorithms::kNoLimit) added["most_members"] = line.members.most;
  }
  return json;
}

Json JobJson(const algorithms::Table& table, const std::vector<int>& sizes, bool shares) {
  Json json{
      {"hosts", sizes}, {"scope", algorithms::WordFor(algorithms::ScopeOf(sizes, shares))}, {"lines", Json::array()}};
  for (const OpKind op : algorithms::Operations()) {
    for (const algorithms::Choice& choice : algorithms::ChoicesOf(table, op, sizes, shares)) {
      json["lines"].push_back(LineJson(op, choice.bytes, choice.algorithm, choice.parameters));
    }
  }
  return json;
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
  if (!options.num_proc) return options.json ? TableJson(table).dump() + "\n" : algorithms::Describe(table);
  HVD_ASSIGN_OR_RETURN(const std::vector<int> sizes, HostSizes(options, read));
  const bool shares = !config.disable_shm;
  return options.json ? JobJson(table, sizes, shares).dump() + "\n" : algorithms::DescribeFor(table, sizes, shares);
}

}  // namespace hvd::launch
