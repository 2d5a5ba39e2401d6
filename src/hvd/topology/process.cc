// SPDX-License-Identifier: Apache-2.0
#include "hvd/topology/process.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "hvd/topology/proc.h"

namespace hvd::topology {
namespace {

std::string Machine() {
  std::string boot = ReadSmallFile("/proc/sys/kernel/random/boot_id").value_or("");
  while (!boot.empty() && std::isspace(static_cast<unsigned char>(boot.back()))) boot.pop_back();
  struct stat space {};
  if (boot.empty() || ::stat("/proc/self/ns/pid", &space) != 0) return "";
  return fmt::format("{}/pid{}", boot, space.st_ino);
}

}  // namespace

uint64_t StartTimeOf(int pid) {
  const std::string text = ReadSmallFile(fmt::format("/proc/{}/stat", pid)).value_or("");
  // The name, in parentheses, may hold anything; field 3 follows the last of them.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  std::string field, state;
  uint64_t threads = 0, start = 0;
  rest >> state;
  for (int at = 4; at < 20; ++at) rest >> field;
  rest >> threads >> field >> start;
  // The first thread may have gone before the others.
  const bool ended = (state == "Z" || state == "X") && threads <= 1;
  return rest && !ended ? start : 0;
}

Duration AgeOf(const Process& process) {
  timespec now{};
  const int64_t ticks = ::sysconf(_SC_CLK_TCK);
  if (process.start_time == 0 || ticks <= 0 || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return {};
  const Duration since_boot = std::chrono::seconds(now.tv_sec) + Duration(now.tv_nsec);
  const auto started = std::chrono::milliseconds(static_cast<int64_t>(process.start_time) * 1000 / ticks);
  return std::max(Duration(1), since_boot - started);
}

Process ThisProcess() { return {Machine(), static_cast<int>(::getpid()), StartTimeOf(::getpid())}; }

Life LifeOf(const Process& process) {
  if (process.machine.empty() || process.start_time == 0 || process.machine != Machine()) return Life::kUnknown;
  return StartTimeOf(process.pid) == process.start_time ? Life::kRuns : Life::kEnded;
}

}  // namespace hvd::topology
