// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the kernel knows of other processes (/proc).
//
// Thread safety: all functions may be called from any thread.

#include <string>
#include <vector>

namespace hvd::launch {

// Children of this process, their children and so on; zombies are not among them.
std::vector<int> Descendants();
// Stopped by a signal (SIGSTOP, SIGTSTP, ...): it will not act on any other than SIGKILL.
bool IsStopped(int pid);

// Whether it has neither a handler for the signal nor ignores it, so that it would take the default action.
bool EndsBy(int pid, int signal);

// Whether the kernel writes its core file now: it has ended, and only its memory is still needed.
bool IsDumpingCore(int pid);
// Sends a signal to a process if it still descends from this one: its number may be another's since it was found.
bool SignalDescendant(int pid, int signal);
// Kills a process if it still belongs to the job: its number may have been given to another one since it was found.
bool KillOfJob(int pid, const std::string& job);
// All of this user whose environment says that they belong to this job (kJobVariable), or to a job inside it.
std::vector<int> ProcessesOfJob(const std::string& job);

}  // namespace hvd::launch
