// SPDX-License-Identifier: Apache-2.0
#pragma once
// `horovodrun agent`: what runs on every host of a job but horovodrun's own. It goes to horovodrun, is told which ranks
// to start, passes on what they print and how they end, and kills everything when horovodrun, or the way to it, is
// gone.
//
//   horovodrun agent --from-stdin                                           started by ssh; see ssh.h
//   horovodrun agent --driver ADDRESS[,ADDRESS...] --token-file FILE [--host NAME]    started by somebody else

#include <string>
#include <vector>

#include "hvd/launch/plan/environment.h"

namespace hvd::launch {

// `arguments` after the word agent. Returns the exit code.
int RunAgent(const std::string& self, const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace hvd::launch
