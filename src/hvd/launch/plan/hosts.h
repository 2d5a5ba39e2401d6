// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hosts and their slots, as users write them, and which rank goes where. Pure.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/result.h"

namespace hvd::launch {

struct Host {
  std::string name;
  int slots = 0;  // 0: not said
  bool operator==(const Host&) const = default;
};

struct Slot {
  std::string host;
  int rank = 0;
  int local_rank = 0;
  int local_size = 0;
  int cross_rank = 0;  // index of the host among those that have this local rank
  int cross_size = 0;
  int process = -1;  // of an elastic job, whose ranks change: the number of the process
  // What a process is known by as long as it lives.
  int key() const { return process < 0 ? rank : process; }
  bool operator==(const Slot&) const = default;
};

// What some editors put before a text.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// "h1:2,h2", "[fe80::1]:4". A host that is named twice has the sum of its slots. `origin` begins errors.
Result<std::vector<Host>> ParseHosts(std::string_view text, std::string_view origin);
// One host per line: "h1 slots=2", "h1:2" or "h1"; '#' begins a comment.
Result<std::vector<Host>> ParseHostfile(std::string_view text, std::string_view origin);

// Those that `is_here` are one machine under several names: they become one, with the first name and the sum of their
// slots. Hosts that `count` ranks do not need are dropped, and not asked about: a name server may be slow. Returns a
// line for the user, or nothing.
using IsHere = std::function<bool(const std::string& name)>;
std::string MergeThisMachine(const IsHere& is_here, int count, std::vector<Host>* hosts);

// Host by host in the given order, each up to its slots. If no host says how many it has, `count` is dealt out evenly.
Result<std::vector<Slot>> AssignSlots(std::vector<Host> hosts, int count);

}  // namespace hvd::launch
