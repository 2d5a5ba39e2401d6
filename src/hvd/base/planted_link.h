// SPDX-License-Identifier: Apache-2.0
#pragma once
// What another user has put where this process is about to write.

#include <string>

#include "hvd/base/result.h"

namespace hvd {

// Refuses `path` if it is a symbolic link in a folder that others can write, unless it belongs to this user or to
// the folder's owner. The kernel has the same rule (fs.protected_symlinks), but not for lookups that a program makes
// itself.
//
// Thread safety: any thread.
Status CheckNoPlantedLink(const std::string& path);

// Opens a file to be written anew, and returns its descriptor. A link is followed only if CheckNoPlantedLink takes it.
// A pipe is written only if it is this user's and somebody reads it; opening never waits.
//
// Thread safety: any thread.
Result<int> OpenToWrite(const std::string& path);

}  // namespace hvd
