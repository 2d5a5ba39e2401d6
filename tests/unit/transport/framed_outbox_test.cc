// SPDX-License-Identifier: Apache-2.0
// What a peer may ask the sending half of a framed pair to remember.
#include <gtest/gtest.h>

#include "hvd/transport/framed_pair_outbox.h"

namespace hvd::transport {
namespace {

TEST(Outbox, GrantsBeforeTheirSendsAreBounded) {
  Outbox outbox;
  // Each on a lane of its own, which costs most.
  uint64_t lane = 0;
  while (lane < uint64_t{1} << 21 && outbox.OnGrant(lane, kEagerBytes + 1)) ++lane;
  EXPECT_EQ(lane, uint64_t{1} << 20);
  // A send makes room for one more.
  std::vector<std::byte> data(kEagerBytes + 1);
  outbox.AddSend(0, {{data.data(), data.size()}}, {});
  EXPECT_TRUE(outbox.OnGrant(lane, kEagerBytes + 1));
  EXPECT_FALSE(outbox.OnGrant(lane, kEagerBytes + 1));
}

}  // namespace
}  // namespace hvd::transport
