// SPDX-License-Identifier: Apache-2.0
#pragma once
// Errors of this library and of frameworks that the failure report explains. known_errors.txt is their one table;
// docs/reference/error-texts.md is made from it, too.
//
// Thread safety: all functions, from any thread.

#include <optional>
#include <string>
#include <vector>

namespace hvd::launch {

// The error with which a program ended: what follows the calls of its last traceback, or, without a traceback, the last
// line. What a program printed before, such as a warning of an error that it handled, is no part of it.
std::vector<std::string> LastError(const std::vector<std::string>& lines);

// "what it means: what to do" for the last line of the last error that holds a known text; nothing if none does.
std::optional<std::string> ExplainError(const std::vector<std::string>& last_lines);

}  // namespace hvd::launch
