// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kPassedOn[] = {SIGUSR1, SIGUSR2};

// nohup starts a program so, which must then outlive its terminal.
bool IgnoresHangup() {
  struct sigaction action {};
  return ::sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t Handled() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int signal : kEnding) {
    // A blocked signal would come although it is ignored.
    if (signal != SIGHUP || !IgnoresHangup()) sigaddset(&set, signal);
  }
  for (const int signal : kPassedOn) sigaddset(&set, signal);
  return set;
}

}  // namespace

sigset_t BlockSignals() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // a parent may have left it ignored, and then nobody could wait
  const sigset_t handled = Handled();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &handled, &before);
  return before;
}

Result<net::Fd> OpenSignals() {
  const sigset_t handled = Handled();
  net::Fd fd(::signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd) return Fail(Code::kResourceExhausted, "signalfd: {}", net::ErrnoText(errno));
  return fd;
}

std::vector<int> TakeSignals(int fd) {
  std::vector<int> signals;
  signalfd_siginfo info{};
  while (::read(fd, &info, sizeof info) == sizeof info) signals.push_back(static_cast<int>(info.ssi_signo));
  return signals;
}

bool IsEndingSignal(int signal) { return std::ranges::count(kEnding, signal) > 0; }

rlimit RaiseFileLimit() {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit raised{before.rlim_max, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

}  // namespace hvd::launch
