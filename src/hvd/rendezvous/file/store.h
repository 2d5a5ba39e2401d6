// SPDX-License-Identifier: Apache-2.0
#pragma once
// A Store of files in one folder: one file per key, written beside and renamed into place, so that a reader sees all of
// a value or nothing. Works on network file systems, hence Wait looks again and again (0.2 ms at first, 20 ms at last)
// instead of asking the kernel to be told.
//
// Thread safety: as Store; processes and threads may each have their own on one folder.
// Lifetime: a file stays until its key is deleted. The engine removes its own when the ranks have met, and does not
// mistake what a killed job left for its own (engine/bootstrap/rendezvous_protocol.h), so that one folder serves one
// job after the other.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hvd/net/fd.h"
#include "hvd/rendezvous/store.h"

namespace hvd::rendezvous::file {

class Store final : public rendezvous::Store {
 public:
  // Makes the folder with mode 0700, or takes one of this user that nobody else can enter. The folder above must exist.
  static Result<std::unique_ptr<rendezvous::Store>> Create(const std::string& folder);

  Status Set(const std::string& key, const std::string& value) override;
  Result<std::vector<std::string>> Wait(const std::vector<std::string>& keys, Duration timeout) override;
  Result<int64_t> Add(const std::string& key, int64_t delta) override;
  Status Delete(const std::string& key) override;

 private:
  Store(std::string folder, net::Fd fd) : folder_(std::move(folder)), fd_(std::move(fd)) {}
  Result<std::optional<std::string>> Read(const std::string& key) const;
  Status Write(const std::string& key, const std::string& value) const;
  // The lock is held while the descriptor is open.
  Result<net::Fd> Lock() const;

  std::string folder_;
  net::Fd fd_;
};

}  // namespace hvd::rendezvous::file
