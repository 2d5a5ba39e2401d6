// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/at_exit.h"

#include <stdlib.h>
#include <unistd.h>

namespace hvd {
namespace {

struct Work {
  std::function<void(int)> function;
  pid_t owner;
};

void Run(int status, void* argument) {
  const auto* work = static_cast<const Work*>(argument);
  if (getpid() == work->owner) work->function(status);
}

}  // namespace

void AtExit(std::function<void(int)> work) { (void)on_exit(Run, new Work{std::move(work), getpid()}); }

}  // namespace hvd
