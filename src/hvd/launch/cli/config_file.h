// SPDX-License-Identifier: Apache-2.0
#pragma once
// Settings from a YAML file. Keys are those of the table in flag_table.cc.

#include <string>
#include <string_view>

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"

namespace hvd::launch {

// Reads `text` into `options`. Errors name `path`, line and key.
Status ReadConfig(const std::string& text, std::string_view path, Options* options);

}  // namespace hvd::launch
