// SPDX-License-Identifier: Apache-2.0
#include "hvd/topology/host.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace hvd::topology {
namespace {

TEST(HostIdentity, ConfiguredNameWins) { EXPECT_EQ(*HostIdentity("left"), "left"); }

TEST(HostIdentity, IsTheSameInAForkedChild) {
  const std::string mine = *HostIdentity("");
  const pid_t child = fork();
  if (child == 0) _exit(*HostIdentity("") == mine ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Two namespaces of one machine are two hosts: no byte of shared memory may pass between them.
TEST(HostIdentity, DiffersInAnotherNetworkNamespace) {
  const std::string mine = *HostIdentity("");
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0) _exit(77);
    _exit(*HostIdentity("") != mine ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "may not make a network namespace here";
  EXPECT_EQ(status, 0);
}

TEST(Hostname, IsNotEmpty) { EXPECT_FALSE(Hostname().empty()); }

}  // namespace
}  // namespace hvd::topology
