// SPDX-License-Identifier: Apache-2.0
#pragma once
// Each rank's output in files: FOLDER/rank.N/stdout and stderr, N padded to the same width for all. Bytes go there as
// the rank wrote them.
//
// Thread safety: none.

#include <string>
#include <string_view>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/net/fd.h"

namespace hvd::launch {

class RankFiles {
 public:
  // Makes the folders; files of an earlier job are replaced.
  static Result<RankFiles> Create(const std::string& folder, int ranks);
  // A new folder below `parent`, named after time and process, and the link parent/latest to it.
  static Result<RankFiles> CreateDated(const std::string& parent, int ranks);

  // For a rank that was not known before.
  Status Add();
  int ranks() const { return static_cast<int>(files_.size() / 2); }
  // An error, the first time that a file cannot be written: the rest of that stream is not kept.
  Status Append(int rank, bool is_stderr, std::string_view bytes);
  const std::string& folder() const { return folder_; }
  std::string RankFolder(int rank) const;

 private:
  std::string folder_;
  int ranks_ = 0;
  std::vector<net::Fd> files_;  // stdout and stderr of each rank in turn
};

}  // namespace hvd::launch
