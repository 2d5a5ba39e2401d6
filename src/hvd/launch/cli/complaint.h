// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the launcher itself says, outside a job: answers, notes, and why it cannot do what it was asked to.

#include <string>
#include <string_view>

#include "hvd/base/result.h"

namespace hvd::launch {

// One line on stderr. Returns `code`.
int Complain(const Error& error, int code);

// "horovodrun: note: ..." on stderr.
void Note(std::string_view text);

// The answer to a question, on stdout. Returns the exit code: not 0 if it could not be written.
int Answer(std::string_view text);

// The exit code for an error of a plan: about the command, or about flags.
int CodeFor(const Error& error);

}  // namespace hvd::launch
