// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <climits>

#include "hvd/launch/run/program.h"

namespace {

// Where this program lies, however it was called.
std::string Self(const char* called) {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : called;
}

// A descriptor that the caller closed must not become a rank's pipe.
void OpenStandardStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);  // takes the lowest free number: this one
  }
}

}  // namespace

int main(int argc, char** argv, char** variables) {
  OpenStandardStreams();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const int code = hvd::launch::RunProgram(Self(argv[0]), arguments, hvd::launch::Environment(variables));
  // A thread may be stuck in writing to a terminal that nobody reads.
  ::_exit(code);
}
