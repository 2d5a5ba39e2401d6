// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which variables ranks on other hosts get: those of the user's shell here, but what belongs to a machine or a login is
// the other host's own. Pure.

#include <string_view>

#include "hvd/launch/plan/plan.h"

namespace hvd::launch {

// Describes one machine or one login session rather than the job (HOME, SSH_CONNECTION, CUDA_VISIBLE_DEVICES, ...).
bool BelongsToHost(std::string_view variable);

// The plan as it travels: without variables that belong to this host, except where the user gave them (-x, --env-file),
// and with this working folder.
Plan ForOtherHosts(const Plan& plan, const std::string& folder);
// On arrival: what belongs to the host comes from its own environment.
void AddHostsOwn(const Environment& own, Environment* environment);

}  // namespace hvd::launch
