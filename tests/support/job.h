// SPDX-License-Identifier: Apache-2.0
#pragma once
// Jobs for tests: ranks as threads of this process (debuggable), or as forked processes (for death, hang and time-out).

#include <functional>
#include <string>
#include <vector>

#include "hvd/hvd.h"

namespace hvd::test {

// Runs body(rank, context) on `size` threads whose engines are one job. `sets`: further process sets.
// HVD_TEST_HOSTS=abb puts rank 0 on host a, 1 and 2 on b, 3 on a again, and so on.
void RunThreads(int size, const std::function<void(int rank, hvd_context* ctx)>& body,
                const std::vector<std::vector<int>>& sets = {});

// The ranks of each host of such a job, hosts by their first rank.
std::vector<std::vector<int>> RanksByHost(int size);

struct ProcessResult {
  int status = -1;      // as waitpid gives it
  bool killed = false;  // by the harness, because it took too long
};

struct ProcessOptions {
  std::vector<std::vector<int>> sets;
  std::vector<std::string> host_ids;      // by rank; empty: all on this host
  std::function<void(int rank)> prepare;  // in each process, before init
  double limit_s = 60;
  std::string rendezvous;  // empty: a fresh folder
};

// Forks `size` processes; each initialises hvd as its rank, runs body(rank) and exits with what it returns (a failed
// EXPECT counts as 99). `parent(pids)` runs meanwhile in this process.
std::vector<ProcessResult> RunProcesses(int size, const std::function<int(int rank)>& body,
                                        const std::function<void(const std::vector<int>& pids)>& parent = {},
                                        const ProcessOptions& options = {});

// A blocking float sum; returns the status.
int Sum(hvd_context* ctx, const std::string& name, float* data, size_t count, int set = 0);

// A port of 127.0.0.1 at which nobody listened just now.
int FreePort();

}  // namespace hvd::test
