// SPDX-License-Identifier: Apache-2.0
#pragma once
// Do all members mean the same operation? A table of checks, run in order; the first that fails is reported. The order
// and the key words of the messages are those that Horovod's users know.
//
// Thread safety: pure functions.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/controller/plan.h"

namespace hvd::controller {

struct Proposal {
  std::string_view name;
  int process_set = 0;
  std::span<const Rank> ranks;            // of the members that asked; global numbers
  std::span<const Signature> signatures;  // one per member that asked
  std::span<const Rank> joined = {};      // members that have joined instead
  bool join_extended = false;
};

// A text that names the ranks and their values, or nothing if all agree.
std::optional<std::string> FindDisagreement(const Proposal& proposal);

// Whether the bytes of all that is gathered can be counted; else the text of the error. `first_dims` as in Execution.
std::optional<std::string> FindOverflow(const Proposal& proposal, std::span<const int64_t> first_dims);
// Whether `rows`, as Execution::first_dims, can be what the members of an operation bring, of which member `me` asked
// `own`: a number for each, no more of `me` than its input has, and a result whose bytes can be counted.
bool RowsFit(const Signature& own, std::span<const int64_t> rows, int members, int me);

}  // namespace hvd::controller
