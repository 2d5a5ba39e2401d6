// SPDX-License-Identifier: Apache-2.0
#include "hvd/topology/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

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

Result<int> CoreOf(std::string_view affinity, int local_rank) {
  std::vector<int> cores;
  for (std::string_view rest = affinity;;) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    int core = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), core);
    if (error != std::errc() || end != item.data() + item.size() || core < 0) {
      return Fail(
          Code::kInvalidArgument,
          "HOROVOD_THREAD_AFFINITY={}: '{}' is not the number of a core; give one for each rank of a host, as 0,1",
          affinity, item);
    }
    cores.push_back(core);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (cores.size() == 1) return cores[0] + local_rank;
  if (local_rank < std::ssize(cores)) return cores[local_rank];
  return Fail(Code::kInvalidArgument, "HOROVOD_THREAD_AFFINITY={}: there is no core for local rank {}", affinity,
              local_rank);
}

Status BindToCore(int core) {
  const auto free = [](cpu_set_t* set) { CPU_FREE(set); };
  const std::unique_ptr<cpu_set_t, decltype(free)> set(CPU_ALLOC(core + 1), free);
  if (!set) return Fail(Code::kResourceExhausted, "no memory for a set of {} cores", core + 1);
  const size_t bytes = CPU_ALLOC_SIZE(core + 1);
  CPU_ZERO_S(bytes, set.get());
  CPU_SET_S(core, bytes, set.get());
  if (::sched_setaffinity(0, bytes, set.get()) == 0) return {};
  return Fail(Code::kInvalidArgument, "core {} cannot be had: {}", core, std::strerror(errno));
}

int64_t TotalMemory(const CgroupPaths& paths) {
  const int64_t machine = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  const auto limit = CgroupMemoryLimit(paths);
  return limit ? std::min(machine, *limit) : machine;
}

}  // namespace hvd::topology
