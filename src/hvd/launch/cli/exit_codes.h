// SPDX-License-Identifier: Apache-2.0
#pragma once
// Exit codes of the launcher's own; see HelpText and docs/reference/horovodrun.md.

namespace hvd::launch {

inline constexpr int kUsage = 2;
inline constexpr int kUnreachable = 121;  // no way to a host, or from there back to here
inline constexpr int kUnfit = 122;        // a host was reached and cannot run ranks: no agent, another version
inline constexpr int kHostLost = 123;     // a host went while its ranks ran
inline constexpr int kTooLate = 124;      // a host did not come in time
inline constexpr int kOwnFailure = 125;
inline constexpr int kCannotRun = 126;
inline constexpr int kNoCommand = 127;

}  // namespace hvd::launch
