// SPDX-License-Identifier: Apache-2.0
// Local ranks die in every way that processes do; the others must be told, by name, and be able to fence the dead.
#include <sys/resource.h>

#include <thread>

#include "tests/unit/transport/shm_harness.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // sanitizers have crash handlers of their own, so ours stay away
#else
constexpr bool kSanitized = false;
#endif

namespace hvd::transport {
namespace {

using testing::Context;
using testing::NowNs;
using testing::ProcessOptions;
using testing::ProcessRanks;

constexpr int kRanks = 5;
constexpr int kVictim = 2;

// A survivor: waits to be told, checks what it is told, and fences the victim.
int Survive(Context& context, int victim, int kind, int detail) {
  Window& window = *context.window;
  RANK_CHECK(context.Await([&] { return window.revoked(); }));
  const Cause cause = window.cause();
  RANK_CHECK(cause.rank == 10 + victim);
  RANK_CHECK(cause.kind == kind);
  RANK_CHECK(cause.detail == detail);
  RANK_CHECK(cause.pid == window.pid(victim));
  RANK_CHECK(context.Await([&] { return context.scratch->told_ns[context.local].load() != 0; }));
  window.SetQuiesced();
  RANK_CHECK(context.Await([&] { return window.CannotStore(victim); }));
  RANK_CHECK(window.peer_state(victim) == PeerState::kDead || kind == Cause::kSilent);
  context.scratch->word[context.local].store(1);
  // Everybody stays until all survivors are through, so that nobody's leaving helps.
  RANK_CHECK(context.Await([&] {
    int through = 0;
    for (int i = 0; i < context.size; ++i) through += i != victim && context.scratch->word[i].load() == 1;
    return through == context.size - 1;
  }));
  return 0;
}

using Die = std::function<void(Context&)>;

void Forever() {
  for (;;) ::pause();
}

// Ranks of which the victim does `die`; the parent then does `kill`, if any. Returns when all survivors were told.
void RunDeath(const char* what, const Die& die, const std::function<void(pid_t)>& kill, int kind, int detail,
              ProcessOptions options = {}) {
  ProcessRanks ranks(
      kRanks,
      [&](Context& context) {
        context.scratch->ready.fetch_add(1);
        if (context.local != kVictim) return Survive(context, kVictim, kind, detail);
        while (context.scratch->go.load() == 0) ::sched_yield();
        die(context);
        Forever();
        return 0;
      },
      options);
  ranks.AwaitReady(kRanks);
  ranks.scratch().go.store(1);
  const int64_t start = NowNs();
  if (kill) kill(ranks.pid(kVictim));
  ranks.ExpectSuccess(kVictim);
  int64_t last = 0;
  for (int i = 0; i < kRanks; ++i) last = std::max(last, ranks.scratch().told_ns[i].load());
  std::printf("  %s: all %d survivors told after %.3f ms\n", what, kRanks - 1, static_cast<double>(last - start) / 1e6);
}

void SigKill(pid_t pid) { ::kill(pid, SIGKILL); }

TEST(ShmDeath, SigkillIsToldToAllByName) { RunDeath("SIGKILL", {}, &SigKill, Cause::kDied, 0); }

TEST(ShmDeath, SigkillIsToldWithoutFutexWaitv) {
  RunDeath("SIGKILL, no futex_waitv", [](Context&) {}, &SigKill, Cause::kDied, 0, {.without_waitv = true});
}

TEST(ShmDeath, ForkedChildrenOfTheVictimDoNotHideItsDeath) {
  testing::SharedPage<std::atomic<int>> children;
  testing::SharedPage<std::atomic<pid_t>[4]> pids;
  RunDeath(
      "SIGKILL with 4 forked children",
      [&](Context&) {
        for (int i = 0; i < 4; ++i) {
          const pid_t child = ::fork();
          if (child == 0) {
            ::alarm(30);
            (*pids)[i].store(::getpid());
            children->fetch_add(1);
            Forever();
          }
        }
      },
      [&](pid_t pid) {
        while (children->load() < 4) ::sched_yield();
        ::kill(pid, SIGKILL);
      },
      Cause::kDied, 0);
  for (auto& pid : *pids) {
    ASSERT_GT(pid.load(), 0);  // 0 would be this whole process group
    ::kill(pid.load(), SIGKILL);
  }
}

TEST(ShmDeath, SegmentationFaultNamesTheSignal) {
  RunDeath(
      "SIGSEGV", [](Context&) { *reinterpret_cast<volatile int*>(8) = 1; }, {},
      kSanitized ? Cause::kDied : Cause::kSignal, kSanitized ? 0 : SIGSEGV);
}

TEST(ShmDeath, SegmentationFaultUnderTheTokenCanBeFencedAtOnce) {
  RunDeath(
      "SIGSEGV under the token",
      [](Context& context) {
        context.window->LockToken();
        ::raise(SIGSEGV);
      },
      {}, kSanitized ? Cause::kDied : Cause::kSignal, kSanitized ? 0 : SIGSEGV);
}

TEST(ShmDeath, AbortNamesTheSignal) {
  RunDeath(
      "abort", [](Context&) { std::abort(); }, {}, Cause::kSignal, SIGABRT);
}

// While a core is written no robust word says anything; the handler's does, and the fence sees that nothing runs any
// more.
TEST(ShmDeath, WritingACoreDoesNotDelayTheNews) {
  char folder[] = "/tmp/hvd-core-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  RunDeath(
      "abort with a core of 200 MB, token held by another thread",
      [&](Context& context) {
        if (::chdir(folder) != 0) ::_exit(1);
        const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
        ::setrlimit(RLIMIT_CORE, &all);
        std::vector<char> ballast(kSanitized ? 1 : 200 << 20, 'x');
        std::atomic<bool> held{false};
        std::thread holder([&] {
          context.window->LockToken();
          held.store(true);
          Forever();
        });
        while (!held.load()) ::sched_yield();
        std::abort();
      },
      {}, Cause::kSignal, SIGABRT);
  std::filesystem::remove_all(folder);
}

TEST(ShmDeath, CrashIsToldByTheKernelWhereHandlersAreNotWanted) {
  RunDeath("SIGBUS, no handlers", [](Context&) { ::raise(SIGBUS); }, {}, Cause::kDied, 0, {.crash_signals = false});
}

TEST(ShmDeath, ExitWithoutGoodbyeIsADeath) {
  RunDeath(
      "exit(0)", [](Context&) { ::_exit(0); }, {}, Cause::kDied, 0);
}

TEST(ShmDeath, KilledUnderTheTokenCanBeFenced) {
  RunDeath(
      "SIGKILL under the token",
      [](Context& context) {
        context.window->LockToken();
        context.scratch->word[100].store(1);
      },
      [](pid_t pid) {
        ::usleep(1000);
        ::kill(pid, SIGKILL);
      },
      Cause::kDied, 0);
}

TEST(ShmDeath, ExitStatusOfACrashIsTheSignals) {
  ProcessRanks ranks(2, [](Context& context) {
    if (context.local == 0) {
      ::signal(SIGFPE, SIG_DFL);
      std::abort();
    }
    RANK_CHECK(context.Await([&] { return context.window->revoked(); }));
    return 0;
  });
  const int status = ranks.Join(0);
  EXPECT_TRUE(WIFSIGNALED(status) || kSanitized);
  if (!kSanitized) {
    EXPECT_EQ(WTERMSIG(status), SIGABRT);
  }
  ranks.ExpectSuccess();
}

// A peer that is stopped under its token cannot be fenced before it is killed; then it can, and its memory is the
// others'.
TEST(ShmDeath, StoppedPeerIsKilledAndFenced) {
  ProcessRanks ranks(4, [](Context& context) {
    Window& window = *context.window;
    auto memory = window.Carve(4096);
    RANK_CHECK(memory.has_value());
    auto* const word = reinterpret_cast<std::atomic<uint64_t>*>(*memory);
    if (context.local == 0) {
      while (window.LockToken()) {
        if (word->fetch_add(1) == 1000) context.scratch->ready.store(1);
        window.UnlockToken();
      }
      return 0;
    }
    while (context.scratch->go.load() == 0) ::sched_yield();
    if (context.local == 1) {
      window.Revoke({.kind = Cause::kSilent, .rank = 10});
      window.Kill(0);
    }
    const int failed = Survive(context, 0, Cause::kSilent, 0);
    if (failed != 0) return failed;
    const uint64_t before = word->load();
    for (int i = 0; i < 200; ++i) {
      ::sched_yield();
      RANK_CHECK(word->load() == before);
    }
    return 0;
  });
  while (ranks.scratch().ready.load() == 0) ::sched_yield();
  ::kill(ranks.pid(0), SIGSTOP);
  int status = 0;
  ::waitpid(ranks.pid(0), &status, WUNTRACED);
  ranks.scratch().go.store(1);
  ranks.ExpectSuccess(0);
  EXPECT_EQ(WTERMSIG(ranks.Join(0)), SIGKILL);
}

TEST(ShmDeath, GoodbyeIsSeenAndHarmsNobody) {
  ProcessRanks ranks(3, [](Context& context) {
    Window& window = *context.window;
    if (context.local == 1) return 0;  // the window's end says goodbye
    RANK_CHECK(context.Await([&] { return window.peer_state(1) == PeerState::kLeft; }));
    RANK_CHECK(context.Await([&] { return context.changes.load() > 0; }));
    RANK_CHECK(!window.revoked());
    RANK_CHECK(window.CannotStore(1));
    RANK_CHECK(!window.CannotStore(2 - context.local));
    context.scratch->ready.fetch_add(1);
    RANK_CHECK(context.Await([&] { return context.scratch->ready.load() == 2; }));
    return 0;
  });
  ranks.ExpectSuccess();
}

TEST(ShmDeath, FirstCauseWins) {
  ProcessRanks ranks(4, [](Context& context) {
    Window& window = *context.window;
    window.Revoke({.kind = Cause::kStall, .rank = 10 + context.local, .detail = 7});
    const Cause first = window.cause();
    context.scratch->word[context.local].store(first.rank);
    context.scratch->ready.fetch_add(1);
    RANK_CHECK(context.Await([&] { return context.scratch->ready.load() == 4; }));
    for (int i = 0; i < 4; ++i) RANK_CHECK(context.scratch->word[i].load() == first.rank);
    RANK_CHECK(window.cause().rank == first.rank && first.detail == 7 && first.kind == Cause::kStall);
    RANK_CHECK(first.pid == window.pid(first.rank - 10));
    return 0;
  });
  ranks.ExpectSuccess();
}

TEST(ShmDeath, HundredKillsAreAllTold) {
  int64_t sum = 0, worst = 0;
  const size_t descriptors = testing::CountDescriptors();
  for (int round = 0; round < 100; ++round) {
    const int victim = round % 4;
    ProcessRanks ranks(4, [&](Context& context) {
      context.scratch->ready.fetch_add(1);
      if (context.local != victim) return Survive(context, victim, Cause::kDied, 0);
      if (round % 2 == 0) context.window->LockToken();
      context.scratch->go.store(1);
      Forever();
      return 0;
    });
    ranks.AwaitReady(4);
    while (ranks.scratch().go.load() == 0) ::sched_yield();
    const int64_t start = NowNs();
    ::kill(ranks.pid(victim), SIGKILL);
    ranks.ExpectSuccess(victim);
    int64_t last = 0;
    for (int i = 0; i < 4; ++i) last = std::max(last, ranks.scratch().told_ns[i].load() - start);
    sum += last;
    worst = std::max(worst, last);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  std::printf("  100 kills: all told after %.3f ms mean, %.3f ms worst\n", static_cast<double>(sum) / 1e8,
              static_cast<double>(worst) / 1e6);
  EXPECT_EQ(testing::CountDescriptors(), descriptors);
}

}  // namespace
}  // namespace hvd::transport
