// SPDX-License-Identifier: Apache-2.0
#include "hvd/algorithms/table.h"

#include <algorithm>
#include <limits>

#include "hvd/algorithms/change.h"

namespace hvd::algorithms {
namespace {

constexpr size_t kKilo = 1 << 10;
constexpr size_t kMega = 1 << 20;

constexpr OpKind kOperations[] = {OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast, OpKind::kAlltoall,
                                  OpKind::kReducescatter};
constexpr OpKind kAllreduce[] = {OpKind::kAllreduce};
constexpr OpKind kAllgatherAndAlltoall[] = {OpKind::kAllgather, OpKind::kAlltoall};
constexpr OpKind kPulled[] = {OpKind::kAllgather, OpKind::kBroadcast, OpKind::kAlltoall};
constexpr OpKind kBroadcast[] = {OpKind::kBroadcast};
constexpr OpKind kReducescatter[] = {OpKind::kReducescatter};

constexpr Scope kScopes[] = {Scope::kShm, Scope::kNetwork, Scope::kMixed};
constexpr Scope kOnOne[] = {Scope::kShm};
constexpr Scope kOnMixed[] = {Scope::kMixed};
constexpr Scope kBetween[] = {Scope::kNetwork, Scope::kMixed};

constexpr EagerLimit kEagerLimits[] = {
    {4, 64 * kKilo}, {8, 32 * kKilo}, {16, 16 * kKilo}, {std::numeric_limits<int>::max(), 4 * kKilo}};

// Lines that several operations or scopes have alike.
struct Group {
  std::span<const OpKind> ops;
  std::span<const Scope> scopes;
  Line line;
};

// The thresholds were measured (docs/design/algorithms.md, docs/operate/benchmarks.md).
std::vector<Group> Measured(const Limits& limits) {
  const size_t direct_chunk = std::max(limits.chunk_bytes, 512 * kKilo);
  return {
      {kOperations, kOnOne, {.algorithm = Algorithm::kTiny, .bytes = {0, kTinyBytes}}},
      // From here on it pays to work on arena memory where it is; below, the copy beside the mark saves a round. It
      // need not be cut as small as staged chunks, which must stay in the cache.
      {kOperations,
       kOnOne,
       {.algorithm = Algorithm::kDirect, .bytes = {8 * kKilo}, .parameters = {.chunk = direct_chunk}}},
      // As direct, after a copy, in pieces that are still in the cache when they are summed.
      {kAllreduce,
       kOnOne,
       {.algorithm = Algorithm::kCopied, .bytes = {32 * kKilo}, .parameters = {.chunk = 256 * kKilo}}},
      {kOperations, kOnOne, {.algorithm = Algorithm::kInline, .bytes = {0, limits.eager_bytes}}},
      // Whether the kernel's work for every page costs more than a second copy depends on the machine.
      {kPulled, kOnOne, {.algorithm = Algorithm::kCma, .bytes = {128 * kKilo}, .on_trial = true}},
      {kOperations,
       kOnOne,
       {.algorithm = Algorithm::kStaged, .parameters = {.chunk = limits.chunk_bytes}, .last_resort = true}},
      // Smaller ones are not worth the steps. Chunks are large enough that their slices are good-sized messages.
      {kAllreduce,
       kOnMixed,
       {.algorithm = Algorithm::kHierarchicalReduce, .bytes = {64 * kKilo + 1}, .parameters = {.chunk = 512 * kKilo}}},
      // Up to so many bytes sent per member, a second step would cost more than it saves.
      {kAllreduce, kBetween, {.algorithm = Algorithm::kOneStep, .bytes = {0, 64 * kKilo}, .measure = Measure::kSent}},
      // Two members keep each other busy with few large slices: good-sized messages that still lie in the cache when
      // they are summed. Among more, each waits for the slowest of several connections at a time, and many small ones
      // let the others go on meanwhile.
      {kAllreduce,
       kBetween,
       {.algorithm = Algorithm::kDirectReduce,
        .members = {0, 2},
        .parameters = {.slice = 256 * kKilo, .flight = 2 * kMega},
        .last_resort = true}},
      {kAllreduce,
       kBetween,
       {.algorithm = Algorithm::kDirectReduce,
        .members = {3},
        .parameters = {.slice = 64 * kKilo, .flight = 4 * kMega},
        .last_resort = true}},
      {kAllgatherAndAlltoall, kBetween, {.algorithm = Algorithm::kExchange, .last_resort = true}},
      {kBroadcast,
       kBetween,
       {.algorithm = Algorithm::kTree, .parameters = {.slice = 256 * kKilo}, .last_resort = true}},
      {kReducescatter,
       kBetween,
       {.algorithm = Algorithm::kDirectScatter, .parameters = {.slice = 256 * kKilo}, .last_resort = true}},
  };
}

uint64_t DividedUp(uint64_t value, uint64_t by) { return value / by + (value % by != 0 ? 1 : 0); }

// In bytes of one member's data.
Range DataBytes(const Line& line, int members) {
  if (line.measure == Measure::kData || members <= 2) return line.bytes;
  const auto others = static_cast<uint64_t>(members - 1);
  return {DividedUp(line.bytes.least, others), line.bytes.most == kNoLimit ? kNoLimit : line.bytes.most / others};
}

}  // namespace

std::span<const EagerLimit> EagerLimits() { return kEagerLimits; }

Limits LimitsFor(int ranks, int64_t eager_limit, int64_t chunk_bytes) {
  Limits limits;
  limits.chunk_bytes = static_cast<size_t>(chunk_bytes) / 64 * 64;
  const auto by_ranks =
      std::ranges::find_if(kEagerLimits, [&](const EagerLimit& one) { return ranks <= one.most_ranks; });
  limits.eager_bytes = eager_limit >= 0 ? static_cast<size_t>(eager_limit) : by_ranks->bytes;
  limits.eager_bytes = std::min(limits.eager_bytes, limits.chunk_bytes);
  return limits;
}

Table::Table(const Limits& limits) {
  for (const Group& group : Measured(limits)) {
    for (const Scope scope : group.scopes) {
      for (const OpKind op : group.ops) {
        Line& line = lines_.emplace_back(group.line);
        line.op = op;
        line.scope = scope;
      }
    }
  }
}

Result<Table> Table::Make(const Limits& limits, std::string_view changes) {
  Table table(limits);
  HVD_ASSIGN_OR_RETURN(const std::vector<Change> parsed, ParseChanges(changes));
  HVD_RETURN_IF_ERROR(ApplyChanges(parsed, limits, &table.lines_));
  return table;
}

Table Table::Tuned(int chunk_percent, size_t eager_bytes) const {
  const auto tuned = [&](size_t bytes) -> size_t {
    if (bytes == 0 || chunk_percent == 100) return bytes;
    const uint64_t scaled = bytes * static_cast<uint64_t>(chunk_percent) / 100 / kParameterUnit * kParameterUnit;
    return std::clamp(scaled, kLeastParameter, kMostParameter);
  };
  Table table = *this;
  size_t staged = kMostParameter;
  for (Line& line : table.lines_) {
    line.parameters.chunk = tuned(line.parameters.chunk);
    line.parameters.slice = tuned(line.parameters.slice);
    if (line.algorithm == Algorithm::kStaged) staged = line.parameters.chunk;
  }
  for (Line& line : table.lines_) {
    // Data beside a mark is one chunk, of whatever size chunks are; see LimitsFor.
    if (line.algorithm == Algorithm::kInline) {
      line.bytes.most = std::min<uint64_t>({line.bytes.most, eager_bytes, staged});
    }
  }
  return table;
}

std::vector<Choice> Table::For(OpKind op, Scope scope, int members) const {
  std::vector<Choice> choices;
  for (const Line& line : lines_) {
    if (line.op != op || line.scope != scope || !line.members.Has(static_cast<uint64_t>(members))) continue;
    choices.push_back({line.algorithm, DataBytes(line, members), line.parameters, line.on_trial});
  }
  return choices;
}

const Choice& Pick(std::span<const Choice> choices, size_t bytes) {
  const auto found = std::ranges::find_if(choices, [&](const Choice& choice) { return choice.bytes.Has(bytes); });
  return found == choices.end() ? choices.back() : *found;
}

std::span<const OpKind> Operations() { return kOperations; }
std::span<const Scope> Scopes() { return kScopes; }

std::string_view WordFor(OpKind op) {
  switch (op) {
    case OpKind::kAllreduce:
      return "allreduce";
    case OpKind::kAllgather:
      return "allgather";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kAlltoall:
      return "alltoall";
    case OpKind::kReducescatter:
      return "reducescatter";
    default:
      return "none";
  }
}

std::string_view WordFor(Scope scope) {
  constexpr std::string_view kWords[] = {"shm", "network", "mixed"};
  return kWords[static_cast<int>(scope)];
}

std::string_view WordFor(Algorithm algorithm) {
  constexpr std::string_view kWords[] = {
      "tiny",     "direct",        "copied",   "inline", "cma",           "staged", "hierarchical_reduce",
      "one_step", "direct_reduce", "exchange", "tree",   "direct_scatter"};
  return kWords[static_cast<int>(algorithm)];
}

}  // namespace hvd::algorithms
