// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a container may use: cpu quota and memory limit of this process's control group and all groups above it, v1 and
// v2. The roots are parameters so that tests can lay out their own.

#include <cstdint>
#include <optional>
#include <string>

namespace hvd::topology {

struct CgroupPaths {
  std::string membership = "/proc/self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

// Cores' worth of cpu time per second (2.5 = two and a half cores); nothing if not limited.
std::optional<double> CgroupCpuLimit(const CgroupPaths& paths = {});
// Bytes; nothing if not limited.
std::optional<int64_t> CgroupMemoryLimit(const CgroupPaths& paths = {});

}  // namespace hvd::topology
