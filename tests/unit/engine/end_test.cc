// SPDX-License-Identifier: Apache-2.0
// How an engine ends when only one rank knows why, or when its peers gave it up. Worlds made by hand: ranks of one
// process, turned by the test, with no connection but the window.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "hvd/engine/engine.h"
#include "hvd/transport/inproc/window.h"

namespace hvd::engine {
namespace {

using transport::inproc::InprocRankGroup;

World MakeWorld(Rank rank, const std::shared_ptr<InprocRankGroup>& group) {
  World world;
  world.layout = MakeLayout(rank, {"here", "here"});
  world.ranks = {{"here", "here", getpid()}, {"here", "here", getpid()}};
  world.loop = std::move(*loop::CreateEpollLoop());
  const auto changed = world.peers_changed;
  loop::Loop* loop = world.loop.get();
  world.window = transport::inproc::CreateWindow(group, rank, loop->wake_fd(), [changed, loop] {
    changed->store(true, std::memory_order_release);
    loop->Wake();
  });
  return world;
}

std::unique_ptr<Engine> MakeEngine(Rank rank, const std::shared_ptr<InprocRankGroup>& group, bool own_thread = false,
                                   const Config& config = {}) {
  return std::move(
      *Engine::Create(MakeWorld(rank, group), {.config = config, .process_sets = {}, .own_thread = own_thread}));
}

Submission SumOf(float* value) {
  Submission submission;
  submission.request.name = "pending";
  submission.request.signature.shape = {1};
  submission.input = submission.output = value;
  submission.input_bytes = submission.output_bytes = sizeof *value;
  return submission;
}

TEST(GivingUp, IsToldToThePeersWithItsCause) {
  const auto group = std::make_shared<InprocRankGroup>(2);
  const auto survivor = MakeEngine(0, group);
  const auto failing = MakeEngine(1, group);
  float value = 1;
  const auto handle = survivor->Submit(SumOf(&value));
  ASSERT_TRUE(handle) << handle.error().message;
  Operation* op = survivor->Find(*handle);
  const std::string cause = "the log of a process set has a gap " + std::string(600, 'x');
  failing->services().GiveUp({Code::kInternal, cause});
  while (!op->over.load()) {
    failing->Poll();
    survivor->Poll();
  }
  EXPECT_EQ(op->error.code, Code::kUnknown);
  EXPECT_EQ(op->error.rank, 1);
  EXPECT_NE(op->error.message.find("rank 1 (host here"), std::string::npos) << op->error.message;
  EXPECT_NE(op->error.message.find("the log of a process set has a gap"), std::string::npos) << op->error.message;
  EXPECT_LT(op->error.message.size(), 2 * transport::kMaxReasonBytes) << "the text is bounded";
  survivor->Release(op);
}

TEST(Silence, IsNotOneOfWhomNobodyAskedBecauseThisRankDidNotRun) {
  using std::chrono::milliseconds;
  const auto group = std::make_shared<InprocRankGroup>(2);
  Config config;
  config.heartbeat_timeout_s = 0.4;
  const auto waiting = MakeEngine(0, group, false, config);
  const auto late = MakeEngine(1, group);
  float value = 1;
  const auto handle = waiting->Submit(SumOf(&value));
  ASSERT_TRUE(handle);
  Operation* op = waiting->Find(*handle);
  const auto wait = [&](milliseconds time) { return waiting->Wait(op, std::chrono::steady_clock::now() + time); };
  EXPECT_FALSE(wait(milliseconds(10)));
  late->Poll();  // the answer
  EXPECT_FALSE(wait(milliseconds(10)));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(wait(milliseconds(1)));  // too early to ask again
  std::this_thread::sleep_for(milliseconds(360));
  EXPECT_FALSE(wait(milliseconds(1)));
  EXPECT_EQ(waiting->Health().code, Code::kOk) << waiting->Health().message;
  late->services().GiveUp({Code::kInternal, "enough"});
  while (!op->over.load()) {
    late->Poll();
    waiting->Poll();
  }
  waiting->Release(op);
}

// Without a thread of its own the engine is idle when it is fenced; with one, that thread may be anywhere.
class Fenced : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(OwnThread, Fenced, ::testing::Bool());

TEST_P(Fenced, RankEndsWithAnError) {
  const auto group = std::make_shared<InprocRankGroup>(2);
  const auto peer = transport::inproc::CreateWindow(group, 0, -1);
  const auto engine = MakeEngine(1, group, GetParam());
  group->SimulateDeath(1);
  while (!peer->CannotStore(1)) {
  }
  peer->SetQuiesced();
  float value = 1;
  std::string text;
  if (const auto run = engine->Run(SumOf(&value)); run) {
    text = run->op->error.message;
    engine->Forget(run->handle);
  } else {
    text = run.error().message;  // its thread knew before
  }
  EXPECT_NE(text.find("Horovod has been shut down: rank 1"), std::string::npos) << text;
  EXPECT_NE(engine->Health().code, Code::kOk);
}

TEST_P(Fenced, RankFailsWhatIsPending) {
  const auto group = std::make_shared<InprocRankGroup>(2);
  const auto peer = transport::inproc::CreateWindow(group, 0, -1);
  const auto engine = MakeEngine(1, group, GetParam());
  float value = 1;
  const auto handle = engine->Submit(SumOf(&value));
  ASSERT_TRUE(handle) << handle.error().message;
  group->SimulateDeath(1);
  while (!peer->CannotStore(1)) {
  }
  peer->SetQuiesced();
  Operation* op = engine->Find(*handle);
  EXPECT_TRUE(engine->Wait(op, Time::max()));
  EXPECT_NE(op->error.message.find("rank 1"), std::string::npos) << op->error.message;
  engine->Release(op);
}

}  // namespace
}  // namespace hvd::engine
