// SPDX-License-Identifier: Apache-2.0
#pragma once
// --heap arena: ranks that take large blocks of malloc from their arena, by a library that is preloaded into them.

#include "hvd/base/result.h"
#include "hvd/launch/plan/environment.h"

namespace hvd::launch {

// An error if HOROVOD_HEAP is neither arena nor system.
Status CheckHeap(const Environment& environment);

// Adds the library to a rank's LD_PRELOAD if HOROVOD_HEAP is arena, before what the user preloads, whose malloc it
// stands on. A sanitizer must come first and has a heap of its own, so ranks with one keep theirs. kNotFound: the
// library is not in this installation.
Status PreloadHeap(Environment* environment);

}  // namespace hvd::launch
