// SPDX-License-Identifier: Apache-2.0
// What every Window must do, over ranks that are processes and ranks that are threads. A new implementation adds a
// runner.
#include "hvd/transport/inproc/window.h"

#include <fcntl.h>

#include <random>
#include <thread>

#include "tests/unit/transport/shm_harness.h"

namespace hvd::transport {
namespace {

using testing::Body;
using testing::Context;
using testing::Scratch;

struct Processes {
  static void Run(int size, const Body& body) {
    testing::ProcessRanks ranks(size, body);
    ranks.ExpectSuccess();
  }
};

struct ProcessesWithoutWaitv {
  static void Run(int size, const Body& body) {
    testing::ProcessRanks ranks(size, body, {.without_waitv = true});
    ranks.ExpectSuccess();
  }
};

struct Threads {
  static void Run(int size, const Body& body) {
    const auto scratch = std::make_unique<Scratch>();
    shm::Arena arena({.capacity = 64 << 20});
    std::vector<Rank> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 10);
    const auto group = std::make_shared<inproc::InprocRankGroup>(ranks, 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < size; ++i) {
      threads.emplace_back([&, i] {
        Context context;
        context.local = i;
        context.size = size;
        context.bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        context.arena = &arena;
        context.scratch = scratch.get();
        auto window = inproc::CreateWindow({.group = group,
                                            .local = i,
                                            .doorbell = context.bell,
                                            .arena = &arena,
                                            .on_change = [&] { context.changes.fetch_add(1); },
                                            .deadline = testing::In(20)});
        ASSERT_TRUE(window) << window.error().message;
        context.window = window->get();
        EXPECT_EQ(body(context), 0) << "local rank " << i;
        window->reset();
        ::close(context.bell);
      });
    }
    for (auto& thread : threads) thread.join();
  }
};

// All ranks wait for each other; `round` counts up.
bool Meet(Context& context, int round) {
  context.scratch->ready.fetch_add(1);
  context.window->RingAll();
  return context.Await([&] { return context.scratch->ready.load() >= round * context.size; });
}

template <typename Runner>
class WindowConformance : public ::testing::Test {};
using Runners = ::testing::Types<Processes, ProcessesWithoutWaitv, Threads>;
TYPED_TEST_SUITE(WindowConformance, Runners);

TYPED_TEST(WindowConformance, CarvedMemoryIsZeroedAlignedAndTheSameForAll) {
  for (int size = 1; size <= 8; ++size) {
    TypeParam::Run(size, [](Context& context) {
      Window& window = *context.window;
      RANK_CHECK(window.local() == context.local && window.local_size() == context.size);
      std::vector<std::atomic<uint64_t>*> blocks;
      for (const size_t bytes : {size_t{8}, size_t{100}, size_t{4096}, size_t{1} << 20}) {
        auto block = window.Carve(bytes);
        RANK_CHECK(block.has_value());
        RANK_CHECK(reinterpret_cast<uintptr_t>(*block) % 128 == 0);
        blocks.push_back(reinterpret_cast<std::atomic<uint64_t>*>(*block));
        RANK_CHECK(blocks.back()[0].load() <= static_cast<uint64_t>(context.size));
        blocks.back()[0].fetch_add(1);
      }
      RANK_CHECK(Meet(context, 1));
      for (auto* block : blocks) RANK_CHECK(block[0].load() == static_cast<uint64_t>(context.size));
      for (size_t i = 1; i < (1 << 17); ++i) RANK_CHECK(blocks.back()[i].load(std::memory_order_relaxed) == 0);
      return Meet(context, 2) ? 0 : 1;
    });
  }
}

TYPED_TEST(WindowConformance, PeersReadAndWriteEachOthersArena) {
  for (int size = 1; size <= 8; ++size) {
    TypeParam::Run(size, [](Context& context) {
      Window& window = *context.window;
      auto board = window.Carve(sizeof(std::atomic<uint64_t>) * 16);
      RANK_CHECK(board.has_value());
      auto* const offsets = reinterpret_cast<std::atomic<uint64_t>*>(*board);
      auto extent = context.arena->Allocate(100000);
      RANK_CHECK(extent.has_value());
      auto* const mine = reinterpret_cast<std::atomic<int>*>(*extent);
      mine[0].store(context.local + 1);
      offsets[context.local].store(static_cast<uint64_t>(context.arena->Contains(*extent, 100000)));
      RANK_CHECK(Meet(context, 1));
      for (int i = 0; i < context.size; ++i) {
        auto* const theirs = reinterpret_cast<std::atomic<int>*>(window.PeerArena(i, offsets[i].load(), sizeof(int)));
        RANK_CHECK(theirs != nullptr);
        RANK_CHECK(theirs[0].load() == i + 1);
        theirs[1 + context.local].store(100 * i + context.local);
      }
      RANK_CHECK(window.PeerArena(context.size - 1, uint64_t{1} << 50, 1) == nullptr);
      RANK_CHECK(window.PeerArena(context.size - 1, offsets[context.size - 1].load(), uint64_t{1} << 50) == nullptr);
      RANK_CHECK(window.PeerArena(context.size - 1, ~uint64_t{0}, 2) == nullptr);
      RANK_CHECK(Meet(context, 2));
      for (int i = 0; i < context.size; ++i) RANK_CHECK(mine[1 + i].load() == 100 * context.local + i);
      RANK_CHECK(Meet(context, 3));
      context.arena->Release(*extent);
      return 0;
    });
  }
}

// A ball goes round; everybody sleeps on its doorbell, with no time-out to save a lost ring.
TYPED_TEST(WindowConformance, NoRingIsLost) {
  for (const int size : {2, 5}) {
    TypeParam::Run(size, [](Context& context) {
      Window& window = *context.window;
      auto memory = window.Carve(64);
      RANK_CHECK(memory.has_value());
      auto* const ball = reinterpret_cast<std::atomic<int>*>(*memory);
      // The doorbell blocks: a lost wake-up hangs here until the alarm.
      ::fcntl(context.bell, F_SETFL, ::fcntl(context.bell, F_GETFL) & ~O_NONBLOCK);
      constexpr int kRounds = 2000;
      for (int round = 0; round < kRounds; ++round) {
        const int turn = round * context.size + context.local;
        while (ball->load(std::memory_order_acquire) < turn) {
          window.BeginSleep();
          uint64_t count = 0;
          if (ball->load(std::memory_order_acquire) < turn) RANK_CHECK(::read(context.bell, &count, 8) == 8);
          window.EndSleep();
        }
        ball->store(turn + 1, std::memory_order_release);
        if (round % 2 == 0) {
          window.RingAll();
        } else {
          window.Ring((context.local + 1) % context.size);
        }
      }
      ::fcntl(context.bell, F_SETFL, ::fcntl(context.bell, F_GETFL) | O_NONBLOCK);
      return Meet(context, 1) ? 0 : 1;
    });
  }
}

TYPED_TEST(WindowConformance, TokenExcludesThreadsOfARank) {
  TypeParam::Run(2, [](Context& context) {
    Window& window = *context.window;
    int plain = 0;  // guarded by the token
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 2000; ++i) {
          if (i % 2 == 0) {
            while (!window.TryLockToken()) std::this_thread::yield();
          } else if (!window.LockToken()) {
            return;
          }
          ++plain;
          window.UnlockToken();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    RANK_CHECK(plain == 6000);
    return Meet(context, 1) ? 0 : 1;
  });
}

TYPED_TEST(WindowConformance, RevocationReachesAllAndQuiescenceIsSeen) {
  for (const int size : {1, 2, 4, 8}) {
    TypeParam::Run(size, [](Context& context) {
      Window& window = *context.window;
      RANK_CHECK(!window.revoked());
      RANK_CHECK(window.cause().kind == Cause::kNone);
      RANK_CHECK(Meet(context, 1));
      if (context.local == context.size - 1) {
        window.Revoke({.kind = Cause::kStall, .rank = 10, .detail = 3, .pid = 1234});
      }
      RANK_CHECK(context.Await([&] { return window.revoked() && context.changes.load() > 0; }));
      RANK_CHECK(window.cause().rank == 10 && window.cause().detail == 3 && window.cause().pid == 1234);
      window.SetQuiesced();
      RANK_CHECK(context.Await([&] {
        for (int i = 0; i < context.size; ++i) {
          if (!window.CannotStore(i)) return false;
        }
        return true;
      }));
      for (int i = 0; i < context.size; ++i) RANK_CHECK(window.peer_state(i) != PeerState::kDead);
      return Meet(context, 2) ? 0 : 1;
    });
  }
}

TYPED_TEST(WindowConformance, GoodbyeIsSeenByAll) {
  TypeParam::Run(4, [](Context& context) {
    Window& window = *context.window;
    RANK_CHECK(Meet(context, 1));
    window.Beat();
    window.Beat();
    RANK_CHECK(window.beat(context.local) == 2);
    if (context.local == 3) {
      window.SayGoodbye();
      window.SayGoodbye();
    }
    RANK_CHECK(context.Await([&] { return window.peer_state(3) == PeerState::kLeft; }));
    RANK_CHECK(window.CannotStore(3) && !window.revoked());
    RANK_CHECK(context.local == 3 || window.peer_state(context.local) == PeerState::kAlive);
    return Meet(context, 2) ? 0 : 1;
  });
}

// A rank whose peers gave it up can never enter again, and never stores after they found it harmless.
TYPED_TEST(WindowConformance, FencedRankNeverStoresAgain) {
  const bool threads = std::is_same_v<TypeParam, Threads>;
  if (!threads) GTEST_SKIP() << "a process is killed; see ShmDeath";
  TypeParam::Run(4, [](Context& context) {
    Window& window = *context.window;
    auto memory = window.Carve(64);
    RANK_CHECK(memory.has_value());
    auto* const word = reinterpret_cast<std::atomic<int>*>(*memory);
    RANK_CHECK(Meet(context, 1));
    if (context.local == 0) {
      while (window.LockToken()) {
        word->fetch_add(1);
        window.UnlockToken();
      }
      RANK_CHECK(!window.TryLockToken());
    } else {
      while (word->load() < 100) std::this_thread::yield();
      window.Kill(0);
      RANK_CHECK(context.Await([&] { return window.CannotStore(0); }));
      const int before = word->load();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      RANK_CHECK(word->load() == before);
    }
    return Meet(context, 2) ? 0 : 1;
  });
}

}  // namespace
}  // namespace hvd::transport
