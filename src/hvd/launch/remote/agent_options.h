// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an agent must know before it can go to horovodrun.

#include <optional>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/launch/plan/environment.h"
#include "hvd/net/token.h"

namespace hvd::launch {

struct AgentOptions {
  bool from_stdin = false;
  bool help = false;
  std::vector<std::string> addresses{};  // of horovodrun
  std::optional<net::Token> token{};
  std::string host{};  // what the job calls this host; empty: by its name or an address of its own
  double timeout_s = 30;
  double silence_s = 5;
};

// From the words after "agent". With --from-stdin nothing else is known yet.
Result<AgentOptions> ParseAgentOptions(const std::vector<std::string>& words, const Environment& environment);
// From the lines that horovodrun sends through ssh; see ssh.h. Pure.
Status TakeTold(std::string_view text, AgentOptions* options);

std::string AgentHelpText();

}  // namespace hvd::launch
