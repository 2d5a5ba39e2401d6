// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two connected non-blocking sockets, and a deadline that only a broken test reaches.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "hvd/net/deadline.h"
#include "hvd/net/fd.h"

namespace hvd::net {

struct TestPair {
  Fd a, b;
  TestPair() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    a.Reset(fds[0]);
    b.Reset(fds[1]);
  }
};

inline Time Soon() { return DeadlineAfter(std::chrono::seconds(20)); }

}  // namespace hvd::net
