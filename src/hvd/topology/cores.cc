// SPDX-License-Identifier: Apache-2.0
#include "hvd/topology/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

namespace hvd::topology {
namespace {

// Cores on which this process or one of these may run.
int AffinityCores(std::span<const int> pids) {
  // The kernel refuses a set smaller than its own; machines above 1024 cores need more than cpu_set_t.
  for (int count = 1024; count <= 1 << 18; count *= 4) {
    const auto free = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(free)> all(CPU_ALLOC(count), free);
    const std::unique_ptr<cpu_set_t, decltype(free)> one(CPU_ALLOC(count), free);
    const size_t bytes = CPU_ALLOC_SIZE(count);
    if (!all || !one || ::sched_getaffinity(0, bytes, all.get()) != 0) continue;
    for (const int pid : pids) {
      if (::sched_getaffinity(pid, bytes, one.get()) == 0) CPU_OR_S(bytes, all.get(), all.get(), one.get());
    }
    return CPU_COUNT_S(bytes, all.get());
  }
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

int UsableCores(const CgroupPaths& paths) { return UsableCores(std::span<const int>(), paths); }

int UsableCores(std::span<const int> pids, const CgroupPaths& paths) {
  int cores = AffinityCores(pids);
  // A hair is added so that 2.9999 from a division counts as 3; compared as double because a quota may exceed any int.
  if (const auto limit = CgroupCpuLimit(paths); limit && *limit < cores) cores = static_cast<int>(*limit + 1e-6);
  return std::max(cores, 1);
}

int64_t TotalMemory(const CgroupPaths& paths) {
  const int64_t machine = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const auto limit = CgroupMemoryLimit(paths);
  return limit ? std::min(machine, *limit) : machine;
}

}  // namespace hvd::topology
