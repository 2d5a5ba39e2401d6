// SPDX-License-Identifier: Apache-2.0
#pragma once
// What horovodrun and the processes of an elastic job write into the job's store. The keys are those of
// horovod.common.membership:
//
//   elastic/ready/ID         a process is ready: its request, what it left and why, what it holds, its sets
//   elastic/view/ID/REQUEST  the answer: a view, or that the job needs the process no more
//   elastic/news/K           the K-th change of hosts: generation, number in this generation, kind
//   elastic/committed/ID     the generation of which the process has completed the first commit
//   elastic/done/ID          the process has finished its training
//
// Thread safety: all functions are pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hvd/launch/elastic/membership.h"

namespace hvd::launch::elastic {

struct ReadyNote {
  int request = 0;
  int generation = 0;  // the last one that the process joined
  int aligned = 0;
  int64_t commit = -1;
  std::string cause{};      // why that generation ended
  std::string unstarted{};  // why it could not be started
  std::string sets{};       // its process sets; only processes read it
};

struct Note {
  enum class Kind { kReady, kCommitted, kDone, kMet };
  Kind kind;
  int process = -1;
  int generation = 0;  // of kCommitted, and of kMet: all of its members have called hvd.init()
  ReadyNote ready{};
};

// What a key that a process has set means; nullopt: nothing for the launcher, or it is damaged.
std::optional<Note> ReadNote(std::string_view key, std::string_view value);

std::string ViewKey(int process, int request);
std::string NewsKey(int number);

// The answer for one member. `news`: the number of the next change of hosts. `sets`: what rank 0 said of process sets.
std::string ViewText(const View& view, const Slot& slot, int news, std::string_view sets, std::string_view reason);
std::string LeaveText();
std::string NewsText(int generation, int count, News what);

}  // namespace hvd::launch::elastic
