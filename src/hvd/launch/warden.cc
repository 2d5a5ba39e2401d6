// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/warden.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "hvd/launch/processes.h"
#include "hvd/launch/secret_folder.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

constexpr int kDismissed = -1;

void CloseAllBut(int kept) {
  const auto close_range = [](unsigned from, unsigned to) { return ::syscall(SYS_close_range, from, to, 0); };
  bool done = kept == 0 || close_range(0, static_cast<unsigned>(kept) - 1) == 0;
  done = close_range(static_cast<unsigned>(kept) + 1, ~0U) == 0 && done;
  if (done) return;
  for (int fd = 0; fd < 1024; ++fd) {
    if (fd != kept) ::close(fd);
  }
}

void KillAll(const std::vector<int>& groups, const std::string& job) {
  // Again and again, because what is killed may just have forked.
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    bool any = false;
    for (const int group : groups) any |= ::kill(-group, SIGKILL) == 0;
    for (const int pid : ProcessesOfJob(job)) {
      if (pid != ::getpid()) any |= ::kill(pid, SIGKILL) == 0;
    }
    if (!any) return;
    ::usleep(20'000);
  }
}

[[noreturn]] void Keep(int from, const std::string& job, const std::string& folder) {
  ::setsid();  // what a terminal sends to the launcher's group is not for it
  ::prctl(PR_SET_NAME, "horovodrun-ward");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  CloseAllBut(from);
  std::vector<int> groups;
  int group = 0;
  while (true) {
    const ssize_t count = ::read(from, &group, sizeof group);
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof group) break;
    if (group == kDismissed) ::_exit(0);
    groups.push_back(group);
  }
  RemoveSecret(folder);
  KillAll(groups, job);
  ::_exit(0);
}

}  // namespace

Result<Warden> Warden::Start(const std::string& job, const std::string& folder) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Fail(Code::kResourceExhausted, "no pipe: {}", net::ErrnoText(errno));
  const pid_t pid = ::fork();
  if (pid == 0) Keep(ends[0], job, folder);
  ::close(ends[0]);
  net::Fd to(ends[1]);
  if (pid < 0) return Fail(Code::kResourceExhausted, "no process: {}", net::ErrnoText(errno));
  return Warden(pid, std::move(to));
}

Warden::Warden(Warden&& other) noexcept : pid_(std::exchange(other.pid_, 0)), to_(std::move(other.to_)) {}

Warden::~Warden() {
  if (pid_ == 0) return;
  Watch(kDismissed);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

void Warden::Watch(int group) {
  // A full pipe would mean that it was stopped; then it is of no use anyway. EPIPE: it was killed.
  [[maybe_unused]] const ssize_t written = ::write(to_.get(), &group, sizeof group);
}

}  // namespace hvd::launch
