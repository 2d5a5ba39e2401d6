// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who started this process, as the environment tells: launchers other than our own give ranks in variables of their
// own. docs/guides/mpi.md has the same table for users.
//
// The first one found counts, and one that started a single process does not: what was started inside it may be the
// real one. torchrun comes first because it is itself often started by srun or mpirun, and never the other way round.

#include <functional>
#include <string>

#include "hvd/base/result.h"

namespace hvd {

struct Config;

enum class LauncherKind { kNone, kTorchrun, kOpenMpi, kMpich, kJsrun, kSlurm, kVariables };

struct Launcher {
  LauncherKind kind = LauncherKind::kNone;
  std::string name;  // "mpirun of Open MPI"
  std::string rank_variable;
  std::string size_variable;
  int rank = -1;
  int size = -1;
  int local_rank = -1;  // both or none
  int local_size = -1;
  // Equal for all ranks of the job on this machine, and for no other job of this user. Empty: nothing tells.
  std::string job;
  std::string master_addr;  // MASTER_ADDR; empty if unset
  int master_port = -1;
  int pmi_fd = -1;    // a descriptor whose other end speaks PMI; -1: none
  bool pmix = false;  // a PMIx server is there
  // Of kNone: what kept variables that are there from being a launcher's.
  std::string missing{};  // the one that lacks; FollowLauncher refuses that
  std::string hint{};     // one sentence

  bool all_local() const { return local_size == size; }
};

// nullptr: not set.
using Variables = std::function<const char*(const char* name)>;

// A value that is no number, or a rank that is not below its size, is an error that names the variable.
Result<Launcher> FindLauncher(const Variables& variables);

// Takes rank and size from the launcher, or forgets it where HOROVOD_* says everything itself. What contradicts is an
// error that names both variables; what is incomplete is one that names the variable that lacks.
Status FollowLauncher(Config* config);

}  // namespace hvd
