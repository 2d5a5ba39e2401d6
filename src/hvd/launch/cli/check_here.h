// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is wrong with flags that only a look at this machine can tell: files, interfaces, addresses. Nothing is changed,
// and nothing was started.

#include "hvd/base/result.h"
#include "hvd/launch/cli/options.h"

namespace hvd::launch {

// kInvalidArgument: one line that names the flag and its value.
Status CheckHere(const Options& options);

// The interfaces of --network-interfaces, which may be separated by commas.
List InterfacesOf(const Options& options);

}  // namespace hvd::launch
