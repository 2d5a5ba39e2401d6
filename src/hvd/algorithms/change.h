// SPDX-License-Identifier: Apache-2.0
#pragma once
// HOROVOD_ALGORITHMS: changes of the table, separated by ';'.
//
//   operation:scope:algorithm=LEAST..MOST       for which bytes it is taken, before all other lines; an end that is
//                                               left out is the algorithm's own limit
//   operation:scope:algorithm=none              it is not taken
//   operation:scope:algorithm:parameter=SIZE
//
// operation and scope may be `any`. Sizes are whole numbers, with K, M or G for 2^10, 2^20, 2^30. Later entries count
// more than earlier ones. Blanks mean nothing.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/algorithms/table.h"

namespace hvd::algorithms {

struct Change {
  std::string text;          // as it was given, for errors
  std::optional<OpKind> op;  // nothing: any
  std::optional<Scope> scope;
  Algorithm algorithm = Algorithm::kStaged;
  // One of these. A range that is empty says none.
  size_t Parameters::*parameter = nullptr;
  size_t size = 0;
  Range bytes;
};

// Texts that ask for the same are not always equal, but those that differ in blanks alone are.
std::string WithoutBlanks(std::string_view text);

// Says what is wrong by itself: words that nobody knows, sizes that are none, entries that come twice.
Result<std::vector<Change>> ParseChanges(std::string_view text);

// Says what does not suit these lines.
Status ApplyChanges(const std::vector<Change>& changes, const Limits& limits, std::vector<Line>* lines);

// What makes `from` into `to` for process sets of that scope and size, where `to` is `from`, tuned: as ParseChanges
// takes it. Without the chunk of staging areas, which is no entry's.
std::string ChangesBetween(const Table& from, const Table& to, Scope scope, int members);

// "64K", "65537": as ParseChanges takes it.
std::string SizeText(uint64_t bytes);

}  // namespace hvd::algorithms
