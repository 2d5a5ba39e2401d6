// SPDX-License-Identifier: Apache-2.0
#pragma once
// Says in words why operations do not come about: from what every rank said about itself to one block of text.
//
// missing   has not submitted (or does not move the data of) an operation that others wait for.
// at fault  missing, and waits for nobody itself; or, where all wait for each other in a circle, the few that wait for
//           something else than the most.
//
// Pure: no clock, no peers. Names come from users: they are escaped and cut.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hvd/base/types.h"
#include "hvd/wire/messages.h"

namespace hvd::engine {

// What is known of one rank.
struct RankObservation {
  Rank rank = 0;
  std::string host;
  int pid = 0;
  std::optional<wire::StatusReply> reply;  // nullopt: it did not answer
  // Of a process of this host that did not answer: its state as in /proc ('T' stopped, 'Z' dead, ...); '-': there is no
  // such process; 0: it is elsewhere.
  char process_state = 0;
};

struct StallReport {
  std::vector<Rank> at_fault;
  double waited_s = 0;     // the longest
  std::string text;        // the block
  bool undecided = false;  // every rank waits for another, and no operation has more ranks than the others
  std::string brief;       // "rank 2 is stopped", for those who read the block before
  std::string key;         // equal for reports that blame the same ranks for the same, whatever waits for them
};

// The members of a process set; nullptr: there is none with that id.
using MembersOf = std::function<const std::vector<Rank>*(int set)>;

// nullopt: nothing has waited for `limit_s` for anybody.
std::optional<StallReport> DescribeStall(const std::vector<RankObservation>& observations, const MembersOf& members,
                                         double limit_s);

}  // namespace hvd::engine
