// SPDX-License-Identifier: Apache-2.0
#pragma once
// The table of algorithms for people: `horovodrun --algorithms`.

#include <string>
#include <vector>

#include "hvd/algorithms/table.h"

namespace hvd::algorithms {

// All lines, and how to change them.
std::string Describe(const Table& table);

// What a process set with so many members on each host takes. `shares`: members of a host share memory.
std::string DescribeFor(const Table& table, const std::vector<int>& host_sizes, bool shares);

// How such a process set's members reach each other, and what they take for an operation.
Scope ScopeOf(const std::vector<int>& host_sizes, bool shares);
std::vector<Choice> ChoicesOf(const Table& table, OpKind op, const std::vector<int>& host_sizes, bool shares);

}  // namespace hvd::algorithms
