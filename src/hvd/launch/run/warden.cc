// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/warden.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "hvd/launch/run/processes.h"
#include "hvd/launch/run/secret_folder.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

constexpr int kDismissed = -1;

// For an agent that runs to clean up after the end of its line.
constexpr int kAgentsMillis = 3000;

// `kept`: in ascending order; those below 0 do not count.
void CloseAllBut(std::initializer_list<int> kept) {
  unsigned from = 0;
  bool done = true;
  const auto close_range = [&](unsigned to) { done &= from > to || ::syscall(SYS_close_range, from, to, 0) == 0; };
  for (const int fd : kept) {
    if (fd < 0) continue;
    if (fd > 0) close_range(static_cast<unsigned>(fd) - 1);
    from = static_cast<unsigned>(fd) + 1;
  }
  close_range(~0U);
  if (done) return;
  for (int fd = 0; fd < 1024; ++fd) {
    if (std::ranges::count(kept, fd) == 0) ::close(fd);
  }
}

void KillAll(const std::vector<int>& groups, const std::string& job) {
  // Again and again, because what is killed may just have forked.
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    bool any = false;
    for (const int group : groups) any |= ::kill(-group, SIGKILL) == 0;
    for (const int pid : ProcessesOfJob(job)) {
      if (pid != ::getpid()) any |= KillOfJob(pid, job);
    }
    if (!any) return;
    ::usleep(20'000);
  }
}

// Reads what there is from the launcher. False: it is dead.
bool Listen(int from, std::vector<int>* groups) {
  int group = 0;
  const ssize_t count = ::read(from, &group, sizeof group);
  if (count < 0 && errno == EINTR) return true;
  if (count != sizeof group) return false;
  if (group == kDismissed) ::_exit(0);
  if (group < 0) {
    std::erase(*groups, -group);
  } else {
    groups->push_back(group);
  }
  return true;
}

// Until the launcher is dead, or should be. True: it is.
bool WaitForTheEnd(int from, int line, std::vector<int>* groups) {
  int patience = -1;
  while (true) {
    pollfd watched[] = {{from, POLLIN, 0}, {line, POLLRDHUP, 0}};
    const int ready = ::poll(watched, 2, patience);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return false;
    if (watched[0].revents != 0 && !Listen(from, groups)) return true;
    if (watched[1].revents == 0) continue;
    // Its end stays readable: what is waited for now is the launcher.
    line = -1;
    patience = kAgentsMillis;
  }
}

[[noreturn]] void Keep(int from, int line, pid_t launcher, const std::string& job, const std::string& secret,
                       const std::string& dumps) {
  ::setsid();  // what a terminal sends to the launcher's group is not for it
  ::prctl(PR_SET_NAME, "horovodrun-ward");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  CloseAllBut({std::min(from, line), std::max(from, line)});
  std::vector<int> groups;
  const bool dead = WaitForTheEnd(from, line, &groups);
  // The other end of the line waits for this one, of which this process has a copy.
  if (line >= 0) ::shutdown(line, SHUT_RDWR);
  if (!dead && ::getppid() == launcher) ::kill(launcher, SIGKILL);
  RemoveSecret(secret);
  KillAll(groups, job);
  std::error_code error;
  if (!dumps.empty()) std::filesystem::remove_all(dumps, error);
  ::_exit(0);
}

}  // namespace

Result<Warden> Warden::Start(const std::string& job, const std::string& secret, int line, const std::string& dumps) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Fail(Code::kResourceExhausted, "no pipe: {}", net::ErrnoText(errno));
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) Keep(ends[0], line, launcher, job, secret, dumps);
  ::close(ends[0]);
  net::Fd to(ends[1]);
  if (pid < 0) return Fail(Code::kResourceExhausted, "no process: {}", net::ErrnoText(errno));
  return Warden(pid, std::move(to));
}

Warden::Warden(Warden&& other) noexcept : pid_(std::exchange(other.pid_, 0)), to_(std::move(other.to_)) {}

Warden::~Warden() {
  if (pid_ == 0) return;
  Say(kDismissed);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
}

void Warden::Watch(int group) { Say(group); }

void Warden::Forget(int group) { Say(-group); }

void Warden::Say(int group) {
  // A full pipe would mean that it was stopped; then it is of no use anyway. EPIPE: it was killed.
  [[maybe_unused]] const ssize_t written = ::write(to_.get(), &group, sizeof group);
}

}  // namespace hvd::launch
