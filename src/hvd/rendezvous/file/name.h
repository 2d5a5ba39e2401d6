// SPDX-License-Identifier: Apache-2.0
#pragma once
// File names for keys: readable where possible, never a path, never longer than file systems take.

#include <string>

#include "hvd/base/result.h"

namespace hvd::rendezvous::file {

// "k-" and the key with unusual bytes as %XX, or "h-" and its SHA-256 where that would be too long.
Result<std::string> FileName(const std::string& key);

}  // namespace hvd::rendezvous::file
