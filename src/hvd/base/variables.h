// SPDX-License-Identifier: Apache-2.0
#pragma once
// The HOROVOD_ variables that are no part of Config: those that horovodrun and the Python packages read, and those of
// Horovod that have no effect in hvd. One table for the launcher, the library, the doctor and the documentation.
//
// Thread safety: all functions, from any thread.

#include <string>
#include <string_view>
#include <vector>

namespace hvd {

// Why a variable of Horovod has no effect; empty if it has one or is none of Horovod's.
std::string_view WhyWithoutEffect(std::string_view name);

// One line for the user for each of these names that has no effect, or that is almost the name of a variable.
std::vector<std::string> NotesOnVariables(const std::vector<std::string>& names);

// The names of the HOROVOD_ variables in this process's environment. In config.cc.
std::vector<std::string> OwnVariables();

// Two tables in Markdown: what other parts of hvd read, and what has no effect.
std::string DescribeOtherVariables();

}  // namespace hvd
