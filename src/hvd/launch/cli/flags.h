// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one table of flags, config-file keys and the variables they become.
//
// Thread safety: the table is constant.

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"
#include "hvd/launch/plan/environment.h"

namespace hvd::launch {

using Field = std::variant<Switch Options::*, Whole Options::*, Number Options::*, Text Options::*, List Options::*>;

enum class Built {
  kYes,
  kNoEffect,  // taken, with a note: it asks for a way of working that this engine does not need
  kNotYet,    // refused: accepting it would promise something
};

// How a value is written into its variable.
enum class Export { kAsIs, kMegabytes, kInverted };

struct Flag {
  const char* names;  // separated by spaces; empty: a key of the config file alone
  Field field;
  const char* value = nullptr;  // how help calls it; nullptr: a switch, which takes none
  const char* help = nullptr;   // nullptr: not listed
  bool on = true;               // what a switch sets
  bool may_be_empty = false;    // of a text
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  const char* choices = nullptr;   // separated by spaces; compared without case
  const char* key = nullptr;       // "section.name" in the config file
  const char* variable = nullptr;  // exported to the ranks when the option was given
  Export as = Export::kAsIs;
  Switch Options::*only_with = nullptr;  // not exported unless that one is on
  Built built = Built::kYes;
  const char* why = nullptr;  // for the user, if it is not built or has no effect; nullptr: as for its variable
};

struct Section {
  const char* title;
  std::span<const Flag> flags;
};

std::span<const Section> Sections();

// nullptr if there is none of that name ("--json") or key.
const Flag* FindFlag(std::string_view name);
const Flag* FindKey(std::string_view key);
// All names, or keys, for suggestions.
std::vector<std::string> FlagNames();
std::vector<std::string> Keys();

// Why it is not built or has no effect; empty if it works.
std::string Why(const Flag& flag);

// Sets the option from text. `origin` is what errors call it: "--num-proc", "job.yaml:3: params.cycle_time_ms".
Status Assign(const Flag& flag, std::string_view origin, std::string_view text, Options* options);
// Sets a switch to what its name says.
Status Turn(const Flag& flag, std::string_view origin, Options* options);

// The variables that the given options become, name and value.
std::vector<std::pair<std::string, std::string>> Exports(const Options& options);

// For the user, a line each: the ranks' variables that have no effect, or that are almost the name of one that has.
std::vector<std::string> NotesFor(const Environment& ranks, const Options& options);

}  // namespace hvd::launch
