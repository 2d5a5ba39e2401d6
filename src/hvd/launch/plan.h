// SPDX-License-Identifier: Apache-2.0
#pragma once
// What will be started: which program, which ranks where, with which variables. Made before anything is started.

#include <string>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/launch/environment.h"
#include "hvd/launch/hosts.h"
#include "hvd/launch/options.h"
#include "hvd/launch/parse.h"

namespace hvd::launch {

struct Plan {
  std::vector<Slot> slots;
  std::string program;      // path of the file to execute
  List arguments;           // its argv
  Environment environment;  // of all ranks; RankEnvironment adds what differs
};

// Codes: kNotFound and kPermissionDenied are about the command, kInvalidArgument about flags.
// `self` is the path of this program: its folder's Python runs scripts that are given without one.
Result<Plan> MakePlan(const Options& options, const Environment& environment, const std::string& self,
                      const FileReader& read);

// `store` is host:port of the place where ranks meet, `job` what marks this job's processes.
Environment RankEnvironment(const Plan& plan, const Slot& slot, const std::string& store, const std::string& job);

// The variable that `job` is in: names of nested jobs, outermost first, separated by '/'.
inline constexpr const char* kJobVariable = "HOROVOD_JOB_ID";

// For --dry-run: for people, or JSON.
std::string Describe(const Plan& plan);
std::string DescribeAsJson(const Plan& plan);

}  // namespace hvd::launch
