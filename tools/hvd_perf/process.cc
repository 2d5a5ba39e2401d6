// SPDX-License-Identifier: Apache-2.0
#include "hvd_perf/process.h"

#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

namespace hvd_perf {
namespace {

// A port that was free a moment ago. Somebody else may take it before rank 0 does; the run then fails with a clear
// error.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || bind(fd, generic, length) != 0 || getsockname(fd, generic, &length) != 0) Die("no free port");
  close(fd);
  return ntohs(address.sin_port);
}

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return signal == SIGALRM ? "ran into --time-limit" : "was ended by signal " + std::to_string(signal);
  }
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

void Die(const std::string& message) {
  std::fprintf(stderr, "hvd_perf: %s\n", message.c_str());
  std::fflush(nullptr);
  _exit(1);
}

void Require(int status, const std::string& what) {
  if (status != HVD_OK) Die(what + ": " + hvd_last_error() + " (status " + std::to_string(status) + ")");
}

double NowMicros() {
  using std::chrono::duration;
  return duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

Rendezvous::Rendezvous(bool tcp) {
  if (tcp) {
    address_ = "127.0.0.1:" + std::to_string(FreePort());
    return;
  }
  std::string pattern = (std::filesystem::temp_directory_path() / "hvd_perf.XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) Die("cannot make a folder " + pattern);
  folder_ = pattern;
  address_ = "file://" + folder_;
}

Rendezvous::~Rendezvous() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void InitRank(const std::string& address, int rank, int ranks) {
  hvd_init_options options;
  hvd_init_options_default(&options);
  options.rank = rank;
  options.size = ranks;
  options.rendezvous = address.c_str();
  options.generation = 0;
  Require(hvd_init(&options, nullptr), "hvd_init of rank " + std::to_string(rank));
}

int RunRanks(const Options& options, const std::function<void(int)>& body, const std::function<void()>& meanwhile) {
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  std::fflush(nullptr);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) {
      for (pid_t started : children) kill(started, SIGKILL);
      Die("cannot start rank " + std::to_string(rank));
    }
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      alarm(options.time_limit_s);
      body(rank);
      std::fflush(nullptr);
      _exit(0);
    }
    children.push_back(child);
  }
  if (meanwhile) meanwhile();
  int result = 0;
  for (size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, 0);
    for (size_t rank = 0; rank < children.size(); ++rank) {
      if (children[rank] != ended) continue;
      children[rank] = 0;
      if (status == 0 || result != 0) continue;
      result = 1;
      std::fprintf(stderr, "hvd_perf: rank %zu %s\n", rank, Describe(status).c_str());
    }
    if (result == 0) continue;
    for (pid_t child : children) {
      if (child != 0) kill(child, SIGKILL);
    }
  }
  return result;
}

void PinRank(const Options& options, int rank, int ranks) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  const int cores = CPU_COUNT(&usable);
  if (options.pin == 0 || (options.pin < 0 && ranks > cores)) return;
  int skip = rank % cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable) || skip-- > 0) continue;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    sched_setaffinity(0, sizeof own, &own);
    return;
  }
}

}  // namespace hvd_perf
