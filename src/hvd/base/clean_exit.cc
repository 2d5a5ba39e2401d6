// SPDX-License-Identifier: Apache-2.0
#include "hvd/base/clean_exit.h"

#include <stdlib.h>
#include <unistd.h>

namespace hvd {
namespace {

struct Work {
  std::function<void()> function;
  pid_t owner;  // a forked child owes nothing
};

void Run(int status, void* argument) {
  const auto* work = static_cast<const Work*>(argument);
  if (status == 0 && getpid() == work->owner) work->function();
}

}  // namespace

void AtCleanExit(std::function<void()> work) { (void)on_exit(Run, new Work{std::move(work), getpid()}); }

}  // namespace hvd
