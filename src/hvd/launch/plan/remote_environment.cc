// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/plan/remote_environment.h"

#include <algorithm>
#include <array>

namespace hvd::launch {
namespace {

using Names = std::string_view;
constexpr std::array<Names, 16> kLocalNames{"HOME",
                                            "USER",
                                            "LOGNAME",
                                            "SHELL",
                                            "MAIL",
                                            "HOSTNAME",
                                            "PWD",
                                            "OLDPWD",
                                            "TMPDIR",
                                            "DISPLAY",
                                            "WAYLAND_DISPLAY",
                                            "XAUTHORITY",
                                            "SHLVL",
                                            "_",
                                            "TERM_SESSION_ID",
                                            "DBUS_SESSION_BUS_ADDRESS"};
// BASH_FUNC_: functions of the shell. The last two: which devices of this machine are whose.
constexpr std::array<Names, 5> kBeginnings{"SSH_", "XDG_", "BASH_FUNC_", "CUDA_VISIBLE_DEVICES",
                                           "ROCR_VISIBLE_DEVICES"};

}  // namespace

bool BelongsToHost(std::string_view variable) {
  return std::ranges::find(kLocalNames, variable) != kLocalNames.end() ||
         std::ranges::any_of(kBeginnings, [&](Names beginning) { return variable.starts_with(beginning); });
}

Plan ForOtherHosts(const Plan& plan, const std::string& folder) {
  Plan travelling = plan;
  travelling.folder = folder;
  for (const std::string& line : plan.environment.Lines()) {
    const std::string name = line.substr(0, line.find('='));
    const bool given = std::ranges::find(plan.given, name) != plan.given.end();
    if (BelongsToHost(name) && !given) travelling.environment.Unset(name);
  }
  return travelling;
}

void AddHostsOwn(const Environment& own, Environment* environment) {
  // What the user gave is there already, and stays.
  for (const std::string& line : own.Lines()) {
    if (BelongsToHost(line.substr(0, line.find('=')))) environment->Add(line);
  }
}

}  // namespace hvd::launch
