// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "hvd/transport/inproc/window.h"

namespace hvd::transport::inproc {
namespace {

TEST(InprocWindow, SimulatedDeathIsToldToAll) {
  auto group = std::make_shared<InprocRankGroup>(3);
  std::atomic<int> told{0};
  std::vector<std::unique_ptr<Window>> windows;
  for (int i = 0; i < 3; ++i) windows.push_back(CreateWindow(group, i, -1, [&] { told.fetch_add(1); }));
  EXPECT_FALSE(windows[0]->revoked());
  group->SimulateDeath(1);
  EXPECT_EQ(told.load(), 3);
  EXPECT_EQ(windows[2]->cause().kind, Cause::kDied);
  EXPECT_EQ(windows[2]->cause().rank, 1);
  EXPECT_EQ(windows[0]->peer_state(1), PeerState::kDead);
  EXPECT_TRUE(windows[0]->CannotStore(1));
  EXPECT_FALSE(windows[1]->LockToken()) << "its token was taken away";
}

TEST(InprocWindow, LostPeerUnderItsTokenIsHarmlessOnlyAfterwards) {
  auto group = std::make_shared<InprocRankGroup>(2);
  auto a = CreateWindow(group, 0, -1);
  auto b = CreateWindow(group, 1, -1);
  ASSERT_TRUE(b->LockToken());
  a->Kill(1);
  std::thread([&] { EXPECT_FALSE(a->CannotStore(1)); }).join();
  b->UnlockToken();
  EXPECT_TRUE(a->CannotStore(1));
  EXPECT_FALSE(b->TryLockToken());
}

TEST(InprocWindow, NamedGroupIsOne) {
  auto a = InprocRankGroup::Named("job", {0, 1}, 1);
  EXPECT_EQ(a, InprocRankGroup::Named("job", {0, 1}, 1));
  EXPECT_NE(a, InprocRankGroup::Named("job", {0, 1}, 2));
  EXPECT_NE(a, InprocRankGroup::Named("other", {0, 1}, 1));
}

TEST(InprocWindow, WaitsForAllUntilTheDeadline) {
  auto group = std::make_shared<InprocRankGroup>(2);
  const auto alone = CreateWindow(
      {.group = group, .local = 0, .on_change = {}, .deadline = std::chrono::steady_clock::now() + Seconds(0.01)});
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().code, Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace hvd::transport::inproc
