// SPDX-License-Identifier: Apache-2.0
#include "hvd/algorithms/table_text.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "hvd/algorithms/change.h"

namespace hvd::algorithms {
namespace {

using Cells = std::vector<std::string>;

constexpr const char* kSyntax =
    "HOROVOD_ALGORITHMS changes the table, equally on all ranks; entries are separated by ';', later ones count more:\n"
    "  operation:scope:algorithm=LEAST..MOST      allreduce:network:one_step=..128K\n"
    "  operation:scope:algorithm=none             any:shm:direct=none\n"
    "  operation:scope:algorithm:parameter=SIZE   broadcast:any:tree:slice=512K\n";

// What it does, and what it needs.
const char* Meaning(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kTiny:
      return "in the line of the mark; all done in one shot";
    case Algorithm::kDirect:
      return "where it is, if that is one piece of arena memory";
    case Algorithm::kCopied:
      return "copied to where its result goes, if that is one piece of arena memory";
    case Algorithm::kInline:
      return "in the slot beside the mark; all done in one shot";
    case Algorithm::kCma:
      return "read out of its owner's memory by process_vm_readv, where that proves faster";
    case Algorithm::kStaged:
      return "copied chunk by chunk through the arena";
    case Algorithm::kHierarchicalReduce:
      return "summed on each host, then between hosts by all its ranks; if every host shares memory";
    case Algorithm::kOneStep:
      return "all to all, everybody sums all";
    case Algorithm::kDirectReduce:
      return "everybody sums a slice and sends it to all";
    case Algorithm::kExchange:
      return "every part to whom it is for";
    case Algorithm::kTree:
      return "into every host once, slice after slice";
    case Algorithm::kDirectScatter:
      return "every part to its owner, who sums";
  }
  return "";
}

const char* Meaning(Scope scope) {
  constexpr const char* kMeanings[] = {"members on one host, by shared memory",
                                       "one member on each host, or a host without shared memory",
                                       "several hosts, of which some have several members"};
  return kMeanings[static_cast<int>(scope)];
}

std::string RangeText(const Range& range) {
  if (range == Range{}) return "any";
  return fmt::format("{}..{}", range.least == 0 ? "" : SizeText(range.least),
                     range.most == kNoLimit ? "" : SizeText(range.most));
}

std::string MembersText(const Range& members) { return members == Range{0, 2} ? "2" : RangeText(members); }

std::string ParametersText(const Parameters& parameters) {
  std::string text;
  const auto add = [&](const char* name, size_t value) {
    if (value != 0) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, SizeText(value));
  };
  add("chunk", parameters.chunk);
  add("slice", parameters.slice);
  add("flight", parameters.flight);
  return text;
}

std::string Columns(const std::vector<Cells>& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format(" {:<{}}", row[i], widths[i] + 1);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// Operations that have equal rows share one name: "any", or theirs.
struct Shown {
  std::vector<OpKind> ops;
  std::vector<Cells> rows;
};

template <typename RowsOf>
std::string Grouped(Cells head, const RowsOf& rows_of) {
  std::vector<Shown> groups;
  for (const OpKind op : Operations()) {
    const std::vector<Cells> rows = rows_of(op);
    const auto same = std::ranges::find(groups, rows, &Shown::rows);
    same == groups.end() ? groups.push_back({{op}, rows}) : same->ops.push_back(op);
  }
  head.insert(head.begin(), "operation");
  std::vector<Cells> all{head};
  for (const Shown& group : groups) {
    std::string name = group.ops.size() == Operations().size() ? "any" : "";
    for (const OpKind op : group.ops) {
      if (group.ops.size() < Operations().size()) name += fmt::format("{}{}", name.empty() ? "" : ", ", WordFor(op));
    }
    for (Cells row : group.rows) {
      row.insert(row.begin(), name);
      all.push_back(std::move(row));
    }
  }
  return Columns(all);
}

std::string EagerText() {
  std::string text;
  for (const EagerLimit& limit : EagerLimits()) {
    text +=
        limit.most_ranks == std::numeric_limits<int>::max()
            ? fmt::format(" and {} beyond", SizeText(limit.bytes))
            : fmt::format("{}{} for up to {} ranks", text.empty() ? "" : ", ", SizeText(limit.bytes), limit.most_ranks);
  }
  return text;
}

}  // namespace

Scope ScopeOf(const std::vector<int>& host_sizes, bool shares) {
  if (host_sizes.size() == 1) return shares ? Scope::kShm : Scope::kNetwork;
  return std::ranges::any_of(host_sizes, [](int size) { return size > 1; }) ? Scope::kMixed : Scope::kNetwork;
}

std::vector<Choice> ChoicesOf(const Table& table, OpKind op, const std::vector<int>& host_sizes, bool shares) {
  const int members = std::accumulate(host_sizes.begin(), host_sizes.end(), 0);
  auto choices = table.For(op, ScopeOf(host_sizes, shares), members);
  std::erase_if(choices, [&](const Choice& choice) {
    return choice.bytes.empty() || (choice.algorithm == Algorithm::kHierarchicalReduce && !shares);
  });
  return choices;
}

std::string Describe(const Table& table) {
  std::string text = "Of the lines for an operation, the first that fits the bytes of a rank is taken.\n";
  for (const Scope scope : Scopes()) {
    text += fmt::format("\n{}: {}\n", WordFor(scope), Meaning(scope));
    text += Grouped({"bytes", "members", "algorithm", "parameters", ""}, [&](OpKind op) {
      std::vector<Cells> rows;
      for (const Line& line : table.lines()) {
        if (line.op != op || line.scope != scope) continue;
        rows.push_back({RangeText(line.bytes) + (line.measure == Measure::kSent ? " to all others" : ""),
                        MembersText(line.members), std::string(WordFor(line.algorithm)),
                        ParametersText(line.parameters), Meaning(line.algorithm)});
      }
      return rows;
    });
  }
  text += fmt::format(
      "\ninline is for data up to the eager limit, HOROVOD_EAGER_LIMIT: {}.\nThis is the table for up to {} ranks; "
      "-np N, also with -H or --hostfile, shows that of a job.\n\n{}",
      EagerText(), EagerLimits()[0].most_ranks, kSyntax);
  return text;
}

std::string DescribeFor(const Table& table, const std::vector<int>& host_sizes, bool shares) {
  const int members = std::accumulate(host_sizes.begin(), host_sizes.end(), 0);
  const Scope scope = ScopeOf(host_sizes, shares);
  std::string text = fmt::format(
      "{} rank{} on {} host{}. Of the lines for an operation, the first that fits the bytes of a rank is "
      "taken.\n\n{}: {}\n",
      members, members == 1 ? "" : "s", host_sizes.size(), host_sizes.size() == 1 ? "" : "s", WordFor(scope),
      Meaning(scope));
  text += Grouped({"bytes", "algorithm", "parameters", ""}, [&](OpKind op) {
    std::vector<Cells> rows;
    for (const Choice& choice : ChoicesOf(table, op, host_sizes, shares)) {
      rows.push_back({RangeText(choice.bytes), std::string(WordFor(choice.algorithm)),
                      ParametersText(choice.parameters), Meaning(choice.algorithm)});
    }
    return rows;
  });
  return text;
}

}  // namespace hvd::algorithms
