// SPDX-License-Identifier: Apache-2.0
// Whose stores a machine's list of sockets shows.
#include "hvd/rendezvous/tcp/other_user.h"

#include <gtest/gtest.h>

namespace hvd::rendezvous::tcp {
namespace {

constexpr std::string_view kSockets =
    "Num       RefCount Protocol Flags    Type St Inode Path\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 20001 @hvd-store-1000-29500\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 20002 @hvd-store-1001-295001\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 20003 @hvd-store-99999999999-29500\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 20004 /run/hvd-store-1002-29500\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 20005 @hvd-store-1003-step-7.0\n"
    "0000000000000000: 00000002 00000000 00010000 0001 01 20006 @hvd-store-";

TEST(OtherUser, IsTheOneWhoseNameIsOnTheSameStore) {
  EXPECT_EQ(OtherUserWith("29500", kSockets, 5), 1000u);
  EXPECT_EQ(OtherUserWith("step-7.0", kSockets, 5), 1003u);
  EXPECT_EQ(OtherUserWith("29500", kSockets, 1000), std::nullopt);
  EXPECT_EQ(OtherUserWith("2950", kSockets, 5), std::nullopt);
  EXPECT_EQ(OtherUserWith("29500", "", 5), std::nullopt);
}

}  // namespace
}  // namespace hvd::rendezvous::tcp
