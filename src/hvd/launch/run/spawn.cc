// SPDX-License-Identifier: Apache-2.0
#include "hvd/launch/run/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

#include "hvd/launch/cli/exit_codes.h"
#include "hvd/net/socket.h"

namespace hvd::launch {
namespace {

struct Prepared {
  int rank;
  const char* program;
  char** arguments;
  char** environment;
  const Inherited* inherited;
  int out, err, in, failures;
  pid_t parent;
  bool terminal;
  cpu_set_t cores;
  bool bound;
};

// Between fork and exec of a program with threads only system calls are safe.
[[noreturn]] void BecomeRank(const Prepared& prepared) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before the kernel was told.
  if (::getppid() != prepared.parent) ::_exit(125);
  if (!prepared.terminal) {
    ::dup2(prepared.in, 0);
    ::dup2(prepared.out, 1);
    ::dup2(prepared.err, 2);
  } else {
    // SIGTTOU would stop a process of the background that asks for the foreground. Without a terminal this fails.
    ::signal(SIGTTOU, SIG_IGN);
    ::tcsetpgrp(0, ::getpid());
    ::signal(SIGTTOU, SIG_DFL);
  }
  if (prepared.bound) ::sched_setaffinity(0, sizeof prepared.cores, &prepared.cores);
  ::setrlimit(RLIMIT_NOFILE, &prepared.inherited->files);
  ::signal(SIGPIPE, SIG_DFL);
  // A shell lets what it starts with `&` ignore these. Ranks get them from horovodrun alone, which means to end them.
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGQUIT, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &prepared.inherited->mask, nullptr);
  ::execve(prepared.program, prepared.arguments, prepared.environment);
  const ExecFailure failure{prepared.rank, errno};
  [[maybe_unused]] const ssize_t written = ::write(prepared.failures, &failure, sizeof failure);
  // As a shell says it: not found, or not to be executed.
  ::_exit(failure.error == ENOENT ? kNoCommand : kCannotRun);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

Result<std::pair<net::Fd, net::Fd>> Pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Fail(Code::kResourceExhausted, "no pipe: {}", net::ErrnoText(errno));
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return std::pair{net::Fd(ends[0]), net::Fd(ends[1])};
}

}  // namespace

std::vector<int> OwnCores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void Become(const std::string& program, const std::vector<std::string>& arguments,
            const std::vector<std::string>& environment) {
  ::execve(program.c_str(), Pointers(arguments).data(), Pointers(environment).data());
}

Result<Child> Spawn(int rank, const std::string& program, const std::vector<std::string>& arguments,
                    const std::vector<std::string>& environment, const Inherited& inherited, int failures,
                    const SpawnOptions& options) {
  HVD_ASSIGN_OR_RETURN(auto out, Pipe());
  HVD_ASSIGN_OR_RETURN(auto err, Pipe());
  const net::Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) return Fail(Code::kResourceExhausted, "/dev/null: {}", net::ErrnoText(errno));
  std::vector<char*> argv = Pointers(arguments);
  std::vector<char*> envp = Pointers(environment);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : options.cores) CPU_SET(core, &cores);
  const Prepared prepared{.rank = rank,
                          .program = program.c_str(),
                          .arguments = argv.data(),
                          .environment = envp.data(),
                          .inherited = &inherited,
                          .out = out.second.get(),
                          .err = err.second.get(),
                          .in = options.input < 0 ? null.get() : options.input,
                          .failures = failures,
                          .parent = ::getpid(),
                          .terminal = options.terminal,
                          .cores = cores,
                          .bound = !options.cores.empty()};
  const pid_t pid = ::fork();
  if (pid < 0) return Fail(Code::kResourceExhausted, "rank {}: no process: {}", rank, net::ErrnoText(errno));
  if (pid == 0) BecomeRank(prepared);
  ::setpgid(pid, pid);  // both do it: a signal to the group must reach it from now on
  return Child{pid, std::move(out.first), std::move(err.first)};
}

}  // namespace hvd::launch
