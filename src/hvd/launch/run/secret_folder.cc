// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/secret_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <sstream>

#include "hvd/launch/cli/parse.h"
#include "hvd/net/fd.h"
#include "hvd/net/socket.h"
#include "hvd/topology/process.h"

namespace hvd::launch {

namespace {

// Beside the token: whose folder this is.
constexpr char kOwner[] = "/owner";

std::string OwnerText() {
  const topology::Process process = topology::ThisProcess();
  return fmt::format("{} {} {}", process.pid, process.start_time, process.machine);
}

bool OwnerHasEnded(const std::string& folder) {
  const auto text = ReadFile(folder + kOwner);
  topology::Process owner;
  if (!text || !(std::istringstream(*text) >> owner.pid >> owner.start_time >> owner.machine)) return false;
  return topology::LifeOf(owner) == topology::Life::kEnded;
}

// Removes folders of this user whose owner was killed, and whatever would have removed them, too.
void SweepFolders(const std::string& parent) {
  constexpr std::string_view kPrefix = "hvd-";
  std::error_code error;
  for (std::filesystem::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    struct stat info {};
    if (!at->path().filename().string().starts_with(kPrefix) || ::lstat(path.c_str(), &info) != 0) continue;
    const bool mine = S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 0777) == 0700;
    if (mine && OwnerHasEnded(path)) RemoveSecret(path);
  }
}

void WriteOwner(const std::string& folder) {
  const net::Fd fd(::open((folder + kOwner).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string text = OwnerText();
  // Without it the folder is not swept; that is all.
  if (fd) (void)!::write(fd.get(), text.data(), text.size());
}

}  // namespace

Result<SecretFolder> SecretFolder::Create(const Environment& environment) {
  int error = 0;
  for (const auto& parent :
       {environment.Get("XDG_RUNTIME_DIR"), environment.Get("TMPDIR"), std::optional<std::string>("/tmp")}) {
    if (!parent) continue;
    SweepFolders(*parent);
    std::string path = *parent + "/hvd-XXXXXX";
    if (::mkdtemp(path.data()) != nullptr) {
      WriteOwner(path);
      return SecretFolder(std::move(path));
    }
    error = errno;
  }
  return Fail(Code::kUnknown, "no folder for the job's token can be made in /tmp: {}", net::ErrnoText(error));
}

SecretFolder::~SecretFolder() { RemoveSecret(path_); }

void RemoveSecret(const std::string& folder) {
  if (folder.empty()) return;
  ::unlink((folder + "/token").c_str());
  ::unlink((folder + kOwner).c_str());
  ::rmdir(folder.c_str());
}

}  // namespace hvd::launch
