// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the launcher ends when it cannot do what it was asked to.

#include "hvd/base/result.h"

namespace hvd::launch {

// One line on stderr. Returns `code`.
int Complain(const Error& error, int code);

// The exit code for an error of a plan: about the command, or about flags.
int CodeFor(const Error& error);

}  // namespace hvd::launch
