// SPDX-License-Identifier: Apache-2.0
#pragma once
// Starts one process, of a rank or of ssh: in a process group of its own, with nothing open but stdin (nothing to read,
// unless given), stdout and stderr, and killed by the kernel when the launcher dies.

#include <signal.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/net/fd.h"

namespace hvd::launch {

// What the launcher changed for itself and a rank must have as it was.
struct Inherited {
  sigset_t mask{};
  rlimit files{};
};

struct Child {
  int pid = 0;
  net::Fd out, err;  // non-blocking
};

struct ExecFailure {
  int rank;
  int error;  // errno
};

// What a rank has beside its program.
struct SpawnOptions {
  int input = -1;            // stdin; -1: nothing to read
  bool terminal = false;     // stdin, stdout and stderr of the launcher, and its terminal in the foreground
  std::vector<int> cores{};  // to which the process is bound; empty: those of the launcher
};

// Must be called on the thread that lives as long as the launcher: the kernel watches it for the rank. A failure to
// execute is told through `failures`, the write end of a pipe: one ExecFailure; the child then exits with 127 or
// 126.
Result<Child> Spawn(int rank, const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment, const Inherited& inherited, int failures,
                    const SpawnOptions& options = {});

// The cores that this process may use.
std::vector<int> OwnCores();

// Has this process execute another program. Returns only if that cannot be.
void Become(const std::string& program, const std::vector<std::string>& arguments,
            const std::vector<std::string>& environment);

}  // namespace hvd::launch
