// SPDX-License-Identifier: Apache-2.0
#pragma once
// What will be started: which program, which ranks where, with which variables. Made before anything is started.

#include <optional>
#include <string>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"
#include "hvd/launch/cli/parse.h"
#include "hvd/launch/plan/environment.h"
#include "hvd/launch/plan/hosts.h"

namespace hvd::launch {

struct Plan {
  std::vector<Slot> slots;
  std::vector<std::string> remote_hosts{};  // those of the slots' hosts that are not this machine, in their order
  std::string folder{};                     // working folder; empty: where this process is
  std::string program{};                    // path of the file to execute
  List arguments{};                         // its argv
  Environment environment{};                // of all ranks; RankEnvironment adds what differs
  std::string note{};                       // for the user, or empty
  std::vector<std::string> given{};         // names of variables that the user gave for the ranks of all hosts
  std::string nic{};                        // of --network-interfaces the first, which is one of this machine; or empty
};

// What a rank must know of the job beside its slot.
struct RankPlace {
  std::string store;              // host:port of the place where ranks meet
  std::string job;                // what marks this job's processes on this host
  std::string token_file{};       // empty: all ranks are of this user on this machine, and there is no token
  std::string flight{};           // folder for dumps of the flight recorder; empty: as the environment says
  std::optional<int> debugged{};  // the rank that has the terminal
  bool elastic = false;           // ranks join one view of the job after the other
};

// The hosts of -H or --hostfile; without them this machine, with this many slots.
Result<std::vector<Host>> GivenHosts(const Options& options, const FileReader& read, int slots);

// Which ranks go where: -H, --hostfile, or all to this machine. `note`: see Plan.
Result<std::vector<Slot>> PlanSlots(const Options& options, const FileReader& read, const IsHere& is_here,
                                    std::string* note);

// What the ranks of all hosts get in their environment: this program's own, --env-file, -x and flags. Changes
// `environment` and `given` of the plan.
Status PlanEnvironment(const Options& options, const FileReader& read, Plan* plan);

// Codes: kNotFound and kPermissionDenied are about the command, kInvalidArgument about flags.
// `self` is the path of this program: its folder's Python runs scripts that are given without one.
Result<Plan> MakePlan(const Options& options, const Environment& environment, const std::string& self,
                      const FileReader& read);

Environment RankEnvironment(const Plan& plan, const Slot& slot, const RankPlace& place);

// The slots of one host.
std::vector<Slot> SlotsOf(const Plan& plan, const std::string& host);

// The variable that `job` is in: names of nested jobs, outermost first, separated by '/'.
inline constexpr const char* kJobVariable = "HOROVOD_JOB_ID";

// For --dry-run: for people, or JSON.
std::string Describe(const Plan& plan);
std::string DescribeAsJson(const Plan& plan);

}  // namespace hvd::launch
