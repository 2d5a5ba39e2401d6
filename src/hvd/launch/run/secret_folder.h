// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where ranks of this host find the job's token: a file of mode 0600 in a folder of mode 0700, gone with the job.
//
// Thread safety: none.

#include <string>
#include <utility>

#include "hvd/base/result.h"
#include "hvd/launch/plan/environment.h"
#include "hvd/net/token.h"

namespace hvd::launch {

class SecretFolder {
 public:
  // In memory where the system offers that (XDG_RUNTIME_DIR), else below TMPDIR or /tmp. Empty until Put.
  static Result<SecretFolder> Create(const Environment& environment);
  SecretFolder(SecretFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  SecretFolder& operator=(SecretFolder&&) = delete;
  ~SecretFolder();

  Status Put(const net::Token& token) const { return token.Save(token_file()); }
  const std::string& path() const { return path_; }
  std::string token_file() const { return path_ + "/token"; }

 private:
  explicit SecretFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Removes such a folder with its token; nothing if the path is empty.
void RemoveSecret(const std::string& folder);

}  // namespace hvd::launch
