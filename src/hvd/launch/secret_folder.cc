// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/secret_folder.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

#include "hvd/net/socket.h"

namespace hvd::launch {

Result<SecretFolder> SecretFolder::Create(const Environment& environment) {
  int error = 0;
  for (const auto& parent :
       {environment.Get("XDG_RUNTIME_DIR"), environment.Get("TMPDIR"), std::optional<std::string>("/tmp")}) {
    if (!parent) continue;
    std::string path = *parent + "/hvd-XXXXXX";
    if (::mkdtemp(path.data()) != nullptr) return SecretFolder(std::move(path));
    error = errno;
  }
  return Fail(Code::kUnknown, "no folder for the job's token can be made in /tmp: {}", net::ErrnoText(error));
}

SecretFolder::~SecretFolder() { RemoveSecret(path_); }

void RemoveSecret(const std::string& folder) {
  if (folder.empty()) return;
  ::unlink((folder + "/token").c_str());
  ::rmdir(folder.c_str());
}

}  // namespace hvd::launch
