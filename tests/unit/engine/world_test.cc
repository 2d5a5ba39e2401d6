// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/bootstrap/world.h"

#include <gtest/gtest.h>

#include "hvd/engine/bootstrap/rendezvous_point.h"

namespace hvd::engine {
namespace {

TEST(Layout, LaunchersValuesAreReportedAndNotUsed) {
  Layout layout = MakeLayout(2, {"a", "a", "b", "b"});
  EXPECT_EQ(layout.reported.local_rank, 0);
  EXPECT_EQ(layout.reported.local_size, 2);
  Config config;
  config.local_rank = 2;
  config.local_size = 4;
  Report(config, &layout);
  EXPECT_EQ(layout.reported.local_rank, 2);
  EXPECT_EQ(layout.reported.local_size, 4);
  EXPECT_EQ(layout.reported.cross_rank, layout.cross_rank);
  EXPECT_EQ(layout.reported.cross_size, layout.cross_size);
  EXPECT_EQ(layout.local_rank, 0);
  EXPECT_EQ(layout.local_size, 2);
}

TEST(RendezvousPoint, AddressesThatNobodyCanMeetAtAreRefused) {
  for (const char* good : {"127.0.0.1:29500", "[::1]:29500", "localhost:1", "file:///tmp/x", "memory:x"}) {
    EXPECT_TRUE(bootstrap::CheckRendezvousAddress(good)) << good;
  }
  for (const char* bad : {"127.0.0.1", "127.0.0.1:0", "[::1]", "::1", "[::1:29500", "host:99999", "host:port", ":29500",
                          "tcp://host:1", "file:x", "file://x/y", "", "???"}) {
    const auto checked = bootstrap::CheckRendezvousAddress(bad);
    ASSERT_FALSE(checked) << bad;
    EXPECT_EQ(checked.error().code, Code::kInvalidArgument);
    EXPECT_EQ(checked.error().message.find(std::string("HOROVOD_RENDEZVOUS_ADDR=") + bad + " "), 0u)
        << checked.error().message;
  }
}

}  // namespace
}  // namespace hvd::engine
