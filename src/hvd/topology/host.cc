// SPDX-License-Identifier: Apache-2.0
#include "hvd/topology/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <climits>
#include <system_error>

#include "hvd/topology/proc.h"

namespace hvd::topology {

Result<std::string> HostIdentity(const std::string& configured) {
  if (!configured.empty()) return configured;
  std::string boot = ReadSmallFile("/proc/sys/kernel/random/boot_id").value_or("");
  while (!boot.empty() && std::isspace(static_cast<unsigned char>(boot.back()))) boot.pop_back();
  struct stat space {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &space) != 0) {
    return Fail(
        Code::kFailedPrecondition,
        "the identity of this host cannot be read from /proc: set HOROVOD_HOSTNAME to a name of its own on every host");
  }
  return fmt::format("{}/net{}/uid{}", boot, space.st_ino, ::geteuid());
}

std::string Hostname() {
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "unknown host";
  return name;
}

}  // namespace hvd::topology
