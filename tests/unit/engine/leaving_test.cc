// SPDX-License-Identifier: Apache-2.0
// Ranks of several hosts, one of which leaves in good order, and what each of the others knows of it when. Worlds made
// by hand, connected by TCP, and turned by the test, one at a time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "hvd/engine/engine.h"
#include "hvd/net/deadline.h"
#include "hvd/transport/tcp/factory.h"

namespace hvd::engine {
namespace {

namespace tcp = transport::tcp;

class Leaving : public ::testing::Test {
 protected:
  static constexpr int kSize = 3;

  Leaving() {
    const auto address = *net::Resolve({"127.0.0.1", 0});
    std::vector<tcp::Listener> listeners;
    std::vector<net::Address> addresses;
    for (int i = 0; i < kSize; ++i) {
      listeners.push_back(std::move(*tcp::Listener::Create(address.at(0))));
      addresses.push_back(listeners.back().address());
    }
    World worlds[kSize];
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < kSize; ++rank) {
      World& world = worlds[rank];
      world.layout = MakeLayout(rank, {"a", "b", "c"});
      for (const char* host : {"a", "b", "c"}) world.ranks.push_back({host, host, getpid()});
      world.loop = std::move(*loop::CreateEpollLoop());
      threads.emplace_back([&, rank] {
        tcp::ConnectOptions options;
        options.rank = rank;
        options.size = kSize;
        options.addresses = addresses;
        options.loop = worlds[rank].loop.get();
        options.listener = &listeners[rank];
        options.deadline = net::DeadlineAfter(std::chrono::seconds(20));
        worlds[rank].pairs = std::move(*tcp::ConnectAll(options));
      });
    }
    for (auto& thread : threads) thread.join();
    for (Rank rank = 0; rank < kSize; ++rank) {
      engines_[rank] =
          std::move(*Engine::Create(std::move(worlds[rank]), {.config = {}, .process_sets = {}, .own_thread = false}));
    }
  }

  Operation* Submit(Rank rank, OpKind op, const std::string& name) {
    Submission submission;
    submission.request.name = name;
    submission.request.signature.op = op;
    submission.request.signature.shape = {1};
    submission.request.signature.root = op == OpKind::kBroadcast ? 2 : -1;
    submission.input = submission.output = &values_[rank];
    submission.input_bytes = submission.output_bytes = sizeof values_[rank];
    const auto handle = engines_[rank]->Submit(submission);
    EXPECT_TRUE(handle) << handle.error().message;
    return engines_[rank]->Find(*handle);
  }

  // Turns only these. What the loopback carries is there at once, but for the kernel's own delays.
  bool TurnUntil(const std::vector<Rank>& ranks, const std::function<bool()>& done) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done() && std::chrono::steady_clock::now() < limit) {
      for (Rank rank : ranks) engines_[rank]->Poll();
    }
    return done();
  }

  float values_[kSize] = {1, 2, 3};
  std::unique_ptr<Engine> engines_[kSize];
};

TEST_F(Leaving, WhoHasNotHeardOfItYetGetsAnErrorAllTheSame) {
  Operation* probe = Submit(0, OpKind::kAllreduce, "probe");
  engines_[2]->Shutdown();
  ASSERT_TRUE(TurnUntil({0}, [&] { return probe->over.load(); }));
  EXPECT_EQ(probe->error.rank, 2) << probe->error.message;
  Operation* late = Submit(1, OpKind::kAllreduce, "late");  // told to rank 0 before rank 1 looks at what rank 2 said
  ASSERT_TRUE(TurnUntil({1, 0}, [&] { return late->over.load(); })) << "waits for ever";
  EXPECT_EQ(late->error.rank, 2) << late->error.message;
  engines_[0]->Release(probe);
  engines_[1]->Release(late);
}

TEST_F(Leaving, WhatItSentBeforeIsReceivedByThoseWhoBeginLater) {
  Operation* root = Submit(2, OpKind::kBroadcast, "b");
  Operation* first = Submit(0, OpKind::kBroadcast, "b");
  Operation* late = Submit(1, OpKind::kBroadcast, "b");
  engines_[1]->Poll();  // asks; sees no answer yet
  ASSERT_TRUE(TurnUntil({2, 0}, [&] { return root->over.load() && first->over.load(); }));
  engines_[2]->Release(root);
  engines_[2]->Shutdown();
  ASSERT_TRUE(TurnUntil({1}, [&] { return late->over.load(); }));
  EXPECT_EQ(late->error.code, Code::kOk) << late->error.message;
  EXPECT_EQ(values_[1], 3);
  engines_[0]->Release(first);
  engines_[1]->Release(late);
}

TEST_F(Leaving, WhoLeavesBecauseOfItIsNotBlamed) {
  Operation* first = Submit(0, OpKind::kAllreduce, "x");
  Operation* second = Submit(1, OpKind::kAllreduce, "x");
  engines_[1]->Poll();
  engines_[2]->Shutdown();
  ASSERT_TRUE(TurnUntil({0}, [&] { return first->over.load(); }));
  engines_[0]->Release(first);
  engines_[0]->Shutdown();
  ASSERT_TRUE(TurnUntil({1}, [&] { return second->over.load(); }));
  EXPECT_EQ(second->error.rank, 2) << second->error.message;
  engines_[1]->Release(second);
}

}  // namespace
}  // namespace hvd::engine
