// SPDX-License-Identifier: Apache-2.0
#include "hvd/topology/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hvd::topology {
namespace {

// A child that does nothing, as it calls itself.
Process StartChild() {
  int pipe_fds[2];
  EXPECT_EQ(pipe(pipe_fds), 0);
  const int pid = fork();
  if (pid == 0) {
    const Process self = ThisProcess();
    if (write(pipe_fds[1], &self.start_time, sizeof self.start_time) != sizeof self.start_time) _exit(1);
    for (;;) pause();
  }
  Process child = ThisProcess();
  child.pid = pid;
  EXPECT_EQ(read(pipe_fds[0], &child.start_time, sizeof child.start_time), ssize_t{sizeof child.start_time});
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  return child;
}

TEST(Process, RunsUntilItEnds) {
  EXPECT_EQ(LifeOf(ThisProcess()), Life::kRuns);
  const Process child = StartChild();
  EXPECT_EQ(LifeOf(child), Life::kRuns);
  kill(child.pid, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(LifeOf(child), Life::kEnded) << "a zombie";
  waitpid(child.pid, nullptr, 0);
  EXPECT_EQ(LifeOf(child), Life::kEnded);
}

TEST(Process, AReusedPidIsAnother) {
  Process other = ThisProcess();
  other.start_time += 1;
  EXPECT_EQ(LifeOf(other), Life::kEnded);
}

TEST(Process, OfAnotherMachineIsUnknown) {
  Process other = ThisProcess();
  other.machine += "x";
  EXPECT_EQ(LifeOf(other), Life::kUnknown);
}

}  // namespace
}  // namespace hvd::topology
