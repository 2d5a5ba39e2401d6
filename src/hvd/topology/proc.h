// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reading the kernel's small text files.

#include <optional>
#include <string>

namespace hvd::topology {

// At most 64 KiB of a file; nothing if it cannot be read.
std::optional<std::string> ReadSmallFile(const std::string& path);

}  // namespace hvd::topology
