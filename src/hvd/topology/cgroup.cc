// SPDX-License-Identifier: Apache-2.0
#include "hvd/topology/cgroup.h"

#include <algorithm>
#include <functional>
#include <sstream>
#include <string_view>

#include "hvd/topology/proc.h"

namespace hvd::topology {
namespace {

// Above this a v1 memory limit means "none" (the kernel's own "none" is a page short of 2^63).
constexpr int64_t kNoLimit = int64_t{1} << 60;

struct Membership {
  std::optional<std::string> unified;     // v2
  std::optional<std::string> controller;  // v1, for the controller asked for
};

bool Lists(std::string_view controllers, std::string_view wanted) {
  while (!controllers.empty()) {
    const size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == wanted) return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
  return false;
}

// Lines of "hierarchy:controllers:path"; v2 is "0::path".
Membership Read(const std::string& file, std::string_view controller) {
  Membership result;
  std::istringstream lines(ReadSmallFile(file).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (controllers.empty()) result.unified = line.substr(second + 1);
    if (Lists(controllers, controller)) result.controller = line.substr(second + 1);
  }
  return result;
}

// The least limit of a group and all above it. Inside a container the path may be one of the host's that does not exist
// here; the walk then ends at the mount's root, which is the container's own group.
template <typename T>
std::optional<T> Least(const std::string& mount, std::string path,
                       const std::function<std::optional<T>(const std::string& folder)>& limit_of) {
  std::optional<T> least;
  for (;;) {
    if (const auto limit = limit_of(mount + path)) least = least ? std::min(*least, *limit) : *limit;
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

template <typename T>
std::optional<T> Lesser(std::optional<T> a, std::optional<T> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<int64_t> Number(const std::string& file) {
  const auto text = ReadSmallFile(file);
  int64_t value = 0;
  if (text && (std::istringstream(*text) >> value)) return value;
  return std::nullopt;
}

std::optional<double> CpuV2(const std::string& folder) {
  std::istringstream text(ReadSmallFile(folder + "/cpu.max").value_or(""));
  double quota = 0;
  double period = 0;
  if ((text >> quota >> period) && quota > 0 && period > 0) return quota / period;  // "max 100000" fails here: no limit
  return std::nullopt;
}

std::optional<double> CpuV1(const std::string& folder) {
  const auto quota = Number(folder + "/cpu.cfs_quota_us");
  const auto period = Number(folder + "/cpu.cfs_period_us");
  if (quota && period && *quota > 0 && *period > 0) return static_cast<double>(*quota) / static_cast<double>(*period);
  return std::nullopt;
}

std::optional<int64_t> MemoryFile(const std::string& file) {
  const auto bytes = Number(file);
  return bytes && *bytes > 0 && *bytes < kNoLimit ? bytes : std::nullopt;
}

}  // namespace

std::optional<double> CgroupCpuLimit(const CgroupPaths& paths) {
  const Membership in = Read(paths.membership, "cpu");
  std::optional<double> v1, v2;
  if (in.unified) v2 = Least<double>(paths.root, *in.unified, &CpuV2);
  if (in.controller) v1 = Least<double>(paths.root + "/cpu", *in.controller, &CpuV1);
  return Lesser(v1, v2);
}

std::optional<int64_t> CgroupMemoryLimit(const CgroupPaths& paths) {
  const Membership in = Read(paths.membership, "memory");
  std::optional<int64_t> v1, v2;
  const auto v2_limit = [](const std::string& folder) { return MemoryFile(folder + "/memory.max"); };
  const auto v1_limit = [](const std::string& folder) { return MemoryFile(folder + "/memory.limit_in_bytes"); };
  if (in.unified) v2 = Least<int64_t>(paths.root, *in.unified, v2_limit);
  if (in.controller) v1 = Least<int64_t>(paths.root + "/memory", *in.controller, v1_limit);
  return Lesser(v1, v2);
}

}  // namespace hvd::topology
