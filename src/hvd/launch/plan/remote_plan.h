// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a job that spans hosts needs before it begins: its token, the addresses at which others reach this machine, and
// a way to start agents. A job of this machine alone needs none of it.

#include <optional>
#include <string>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"
#include "hvd/launch/plan/plan.h"
#include "hvd/launch/remote/remote_hosts.h"
#include "hvd/launch/run/secret_folder.h"
#include "hvd/net/token.h"

namespace hvd::launch {

struct Trust {
  std::optional<net::Token> token;     // none: all ranks are children of this process
  std::optional<SecretFolder> folder;  // where ranks find it
  std::string given{};                 // the file that the user gave, or empty
};

Result<Trust> MakeTrust(const Options& options, const Plan& plan, const Environment& environment);

// kNotFound: there is no ssh. kInvalidArgument: an interface or address that this machine does not have. The token
// must outlive what is made of this.
Result<RemoteHosts::Settings> PlanRemote(const std::string& self, const Options& options, const Plan& plan,
                                         const net::Token& token, const Environment& environment);

// For --no-ssh: one line that says what to run on which hosts.
std::string HowToStartAgents(const Plan& plan, const std::vector<std::string>& addresses, const Trust& trust);

}  // namespace hvd::launch
