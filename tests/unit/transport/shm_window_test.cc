// SPDX-License-Identifier: Apache-2.0
// How local processes meet, what a window leaves behind, and what forked children may do with it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "hvd/transport/shm/fork.h"
#include "hvd/transport/shm/handshake.h"
#include "tests/unit/transport/shm_harness.h"

namespace hvd::transport::shm {
namespace {

using testing::Context;
using testing::In;
using testing::NowNs;
using testing::ProcessRanks;
using testing::SharedStore;

WindowOptions Options(SharedStore& store, Arena& arena, int bell, int local = 0, std::vector<Rank> ranks = {0}) {
  return {.store = &store,
          .prefix = "host",
          .generation = 3,
          .local = local,
          .ranks = std::move(ranks),
          .doorbell = bell,
          .arena = &arena,
          .auth_key = "key",
          .deadline = In(10),
          .on_change = {}};
}

class Alone : public ::testing::Test {
 protected:
  ~Alone() override { ::close(bell_); }
  SharedStore store_;
  Arena arena_{{.capacity = 64 << 20}};
  int bell_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
};

TEST(ShmProbe, SharedMemoryWorksHere) {
  const size_t descriptors = testing::CountDescriptors();
  const auto probe = Probe();
  EXPECT_TRUE(probe) << (probe ? "" : probe.error().message);
  EXPECT_EQ(testing::CountDescriptors(), descriptors);
}

// The last word of a leader and its going are one moment for a member that begins to listen just then. Many pairs at
// once, because a member must lose its core in the middle of listening.
TEST(ShmHandshake, WhatWasSaidBeforeTheEndIsHeard) {
  std::atomic<int> unheard{0};
  const auto meet = [&] {
    for (int i = 0; i < 10'000; ++i) {
      int ends[2];
      ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
      Fd member(ends[0]);
      std::atomic<bool> listens{false};
      std::jthread leader([&listens, end = Fd(ends[1])] {
        while (!listens.load()) {
        }
        EXPECT_TRUE(SendNote(end.get(), Kind::kGo, "", In(10)));
      });
      listens = true;
      unheard += !ReceivePacket(member.get(), In(10)).has_value();
    }
  };
  {
    std::vector<std::jthread> pairs;
    for (int i = 0; i < 6; ++i) pairs.emplace_back(meet);
  }
  EXPECT_EQ(unheard, 0);
}

TEST_F(Alone, LeavesNothingBehind) {
  { ASSERT_TRUE(CreateWindow(Options(store_, arena_, bell_))); }
  const size_t descriptors = testing::CountDescriptors();
  const size_t mappings = testing::CountMappings();
  for (int i = 0; i < 50; ++i) {
    auto window = CreateWindow(Options(store_, arena_, bell_));
    ASSERT_TRUE(window) << window.error().message;
    ASSERT_TRUE((*window)->Carve(1 << 20));
  }
  EXPECT_EQ(testing::CountDescriptors(), descriptors);
  EXPECT_EQ(testing::CountMappings(), mappings);
}

TEST_F(Alone, TwoWindowsInOneProcessAreIndependent) {
  auto a = CreateWindow(Options(store_, arena_, bell_));
  auto b = CreateWindow(Options(store_, arena_, bell_));
  ASSERT_TRUE(a && b);
  (*a)->Revoke({.kind = Cause::kStall, .rank = 0});
  EXPECT_TRUE((*a)->revoked());
  EXPECT_FALSE((*b)->revoked());
  EXPECT_TRUE((*a)->TryLockToken());
  EXPECT_TRUE((*b)->TryLockToken());
  (*a)->UnlockToken();
  (*b)->UnlockToken();
}

TEST_F(Alone, CarvingTooMuchIsAnError) {
  auto window = CreateWindow(Options(store_, arena_, bell_));
  ASSERT_TRUE(window);
  const auto much = (*window)->Carve(uint64_t{1} << 40);
  ASSERT_FALSE(much);
  EXPECT_EQ(much.error().code, Code::kResourceExhausted);
}

TEST_F(Alone, LeaderNamesTheMissingRank) {
  auto options = Options(store_, arena_, bell_, 0, {4, 7});
  options.deadline = In(0.1);
  const auto window = CreateWindow(options);
  ASSERT_FALSE(window);
  EXPECT_EQ(window.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(window.error().message.find("rank 7"), std::string::npos) << window.error().message;
}

TEST_F(Alone, MemberNamesTheMissingLeader) {
  auto options = Options(store_, arena_, bell_, 1, {4, 7});
  options.deadline = In(0.1);
  const auto window = CreateWindow(options);
  ASSERT_FALSE(window);
  EXPECT_EQ(window.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(window.error().message.find("rank 4"), std::string::npos) << window.error().message;
}

TEST_F(Alone, MemberWithAnotherKeyIsRefusedByName) {
  const pid_t leader = ::fork();
  if (leader == 0) {
    Arena arena({.capacity = 64 << 20});
    auto options = Options(store_, arena, bell_, 0, {0, 1});
    options.deadline = In(0.5);
    ::_exit(CreateWindow(options) ? 1 : 0);
  }
  auto options = Options(store_, arena_, bell_, 1, {0, 1});
  options.auth_key = "another";
  const auto window = CreateWindow(options);
  ASSERT_FALSE(window);
  EXPECT_EQ(window.error().code, Code::kPermissionDenied);
  EXPECT_NE(window.error().message.find("key"), std::string::npos) << window.error().message;
  int status = 0;
  ::waitpid(leader, &status, 0);
  EXPECT_EQ(status, 0);
}

// Strangers that say nonsense, or nothing, do not keep the ranks from meeting.
TEST_F(Alone, StrangersDoNotDisturbTheMeeting) {
  const pid_t leader = ::fork();
  if (leader == 0) {
    Arena arena({.capacity = 64 << 20});
    ::_exit(CreateWindow(Options(store_, arena, bell_, 0, {0, 1})) ? 0 : 1);
  }
  const auto name = store_.Wait({"host/shm/3"}, Seconds(10));
  ASSERT_TRUE(name);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name->front().copy(address.sun_path + 1, name->front().size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name->front().size());
  std::vector<Fd> strangers;
  for (const std::string text : {"", "x", "GET / HTTP/1.0", "0123456789abcdef0123456789abcdef0123456789abcdef"}) {
    strangers.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    ASSERT_EQ(::connect(strangers.back().get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    if (text.empty()) continue;
    ASSERT_GT(::send(strangers.back().get(), text.data(), text.size(), 0), 0);
  }
  const auto window = CreateWindow(Options(store_, arena_, bell_, 1, {0, 1}));
  EXPECT_TRUE(window) << window.error().message;
  int status = 0;
  ::waitpid(leader, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Alone, StaleNameInTheStoreIsOvercome) {
  ASSERT_TRUE(store_.Set("host/shm/3", "hvd-0123456789abcdef"));
  const pid_t member = ::fork();
  if (member == 0) {
    Arena arena({.capacity = 64 << 20});
    ::_exit(CreateWindow(Options(store_, arena, bell_, 1, {0, 1})) ? 0 : 1);
  }
  EXPECT_TRUE(CreateWindow(Options(store_, arena_, bell_, 0, {0, 1})));
  int status = 0;
  ::waitpid(member, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Alone, ForkedChildHasNoDescriptorsAndHarmsNothing) {
  testing::SharedPage<std::atomic<size_t>> bare;  // what a child has that is forked before there is a window
  const pid_t first = ::fork();
  if (first == 0) {
    bare->store(testing::CountDescriptors());
    ::_exit(0);
  }
  ::waitpid(first, nullptr, 0);
  const size_t before = bare->load();
  Arena arena({.capacity = 64 << 20});
  auto window = CreateWindow(Options(store_, arena, bell_));
  ASSERT_TRUE(window);
  const pid_t child = ::fork();
  if (child == 0) {
    if (testing::CountDescriptors() != before) ::_exit(1);
    window->reset();
    if (testing::CountDescriptors() != before) ::_exit(2);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ((*window)->peer_state(0), PeerState::kAlive);
  EXPECT_FALSE((*window)->revoked());
  EXPECT_TRUE((*window)->LockToken());
  (*window)->UnlockToken();
}

TEST_F(Alone, ForkedChildKeepsFilesThatHaveTakenOurNumbers) {
  const int number = ::memfd_create("ours", MFD_CLOEXEC);
  const Fd ours(number);
  const int kept = ::dup(number);
  // The program closes what is not its own, and the next file that it opens gets the number.
  ASSERT_EQ(::dup2(::memfd_create("the program's", MFD_CLOEXEC), number), number);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::fcntl(number, F_GETFD) < 0 ? 1 : 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the child lost a file of the program";
  ASSERT_EQ(::dup2(kept, number), number);
  ::close(kept);
}

TEST_F(Alone, CrashOfAForkedChildIsNotThisRanksDeath) {
  auto window = CreateWindow(Options(store_, arena_, bell_));
  ASSERT_TRUE(window);
  const pid_t child = ::fork();
  if (child == 0) std::abort();
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ((*window)->peer_state(0), PeerState::kAlive);
  EXPECT_FALSE((*window)->revoked());
}

TEST(ShmMeeting, SixtyFourRanksMeet) {
  testing::SharedPage<std::atomic<int64_t>[64]> done;
  const int64_t start = NowNs();
  ProcessRanks ranks(64, [&](Context& context) {
    (*done)[context.local].store(NowNs());
    context.scratch->ready.fetch_add(1);
    RANK_CHECK(context.Await([&] { return context.scratch->ready.load() == 64; }));
    RANK_CHECK(!context.window->revoked());
    return 0;
  });
  const int64_t forked = NowNs();
  ranks.ExpectSuccess();
  int64_t last = 0;
  for (const auto& time : *done) last = std::max(last, time.load());
  std::printf("  64 ranks: forked in %.0f ms, all met %.0f ms later\n", static_cast<double>(forked - start) / 1e6,
              static_cast<double>(last - forked) / 1e6);
}

TEST(ShmMeeting, HundredAndTwentyEightRanksMeetAndLearnOfADeath) {
  ProcessRanks ranks(128, [&](Context& context) {
    context.scratch->ready.fetch_add(1);
    if (context.local == 77) {
      while (context.scratch->ready.load() < 128) ::usleep(100);
      ::raise(SIGKILL);
    }
    RANK_CHECK(context.Await([&] { return context.window->revoked(); }));
    RANK_CHECK(context.window->cause().rank == 87);
    context.scratch->go.fetch_add(1);
    RANK_CHECK(context.Await([&] { return context.scratch->go.load() == 127; }));
    return 0;
  });
  ranks.ExpectSuccess(77);
}

TEST(ShmPeerMemory, RanksReadWhatIsInNoArenaUntilItsOwnerIsGone) {
  // Words of the scratch: where every rank has its number.
  testing::SharedPage<std::atomic<uint64_t>[3]> places;
  ProcessRanks ranks(3, [&](Context& context) {
    const auto number = std::make_unique<std::vector<int>>(100'000, 7 + context.local);
    (*places)[context.local].store(reinterpret_cast<uint64_t>(number->data()));
    RANK_CHECK(context.window->Readable(number->data(), number->size() * sizeof(int)));
    context.scratch->ready.fetch_add(1);
    RANK_CHECK(context.Await([&] { return context.scratch->ready.load() == 3; }));
    RANK_CHECK(context.Await([&] { return context.window->CanReadPeers(); }));
    std::vector<int> seen(number->size());
    for (int local = 0; local < 3; ++local) {
      RANK_CHECK(context.window->ReadPeer(local, (*places)[local].load(), seen.data(), seen.size() * sizeof(int)) == 0);
      RANK_CHECK(std::count(seen.begin(), seen.end(), 7 + local) == std::ssize(seen));
    }
    RANK_CHECK(context.window->ReadPeer(1, 8, seen.data(), 4) == EFAULT);
    RANK_CHECK(::prctl(PR_SET_DUMPABLE, 0) == 0 && !context.window->CanReadPeers());
    RANK_CHECK(::prctl(PR_SET_DUMPABLE, 1) == 0 && context.window->CanReadPeers());
    context.scratch->go.fetch_add(1);
    while (context.scratch->go.load() < 3) ::usleep(100);
    if (context.local == 1) ::raise(SIGKILL);
    RANK_CHECK(context.Await([&] { return context.window->revoked(); }));
    RANK_CHECK(context.window->ReadPeer(1, (*places)[1].load(), seen.data(), 4) == ESRCH);
    return 0;
  });
  ranks.ExpectSuccess(1);
}

TEST_F(Alone, MemoryThatCannotBeReadIsNotOffered) {
  auto window = CreateWindow(Options(store_, arena_, bell_));
  ASSERT_TRUE(window) << window.error().message;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  auto* const pages =
      static_cast<std::byte*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  EXPECT_TRUE((*window)->Readable(pages, 2 * page));
  ASSERT_EQ(::mprotect(pages + page, page, PROT_NONE), 0);
  EXPECT_TRUE((*window)->Readable(pages, page));
  EXPECT_FALSE((*window)->Readable(pages, 2 * page));
  ::munmap(pages, 2 * page);
}

TEST(ShmHandshake, NoPacketIsTakenForWhatItIsNot) {
  std::srand(7);
  for (int i = 0; i < 20000; ++i) {
    Packet packet;
    packet.bytes.resize(static_cast<size_t>(std::rand() % 400));
    for (auto& byte : packet.bytes) byte = static_cast<std::byte>(std::rand());
    if (i % 2 == 0 && packet.bytes.size() >= sizeof(Header)) {
      Header header{.kind = static_cast<Kind>(std::rand() % 10)};
      std::memcpy(packet.bytes.data(), &header, sizeof header);
    }
    const bool fits = packet.bytes.size() == sizeof(Hello) && KindOf(packet).value_or(Kind::kGo) == Kind::kHello;
    EXPECT_EQ(Parse<Hello>(packet).has_value(), fits);
  }
}

TEST(ShmHandshake, ProofsDependOnEverything) {
  const Nonce a = RandomNonce(), b = RandomNonce();
  Member who{.local = 1, .rank = 2, .pid = 3};
  const Mac mac = MemberMac("k", a, b, who);
  EXPECT_TRUE(Equal(mac, MemberMac("k", a, b, who)));
  EXPECT_FALSE(Equal(mac, MemberMac("l", a, b, who)));
  EXPECT_FALSE(Equal(mac, MemberMac("k", b, a, who)));
  who.rank = 4;
  EXPECT_FALSE(Equal(mac, MemberMac("k", a, b, who)));
}

TEST(ShmMeeting, ARankThatCannotTakePartTellsTheOthersWhy) {
  // The leader cannot, then a member cannot: nobody waits for the deadline.
  for (const int broken : {0, 1}) {
    SharedStore store;
    Arena arena({.capacity = 1 << 20});
    std::vector<std::thread> threads;
    for (int local = 0; local < 2; ++local) {
      threads.emplace_back([&, local] {
        const int bell = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        auto options = Options(store, arena, local == broken ? -1 : bell, local, {0, 1});
        options.deadline = In(600);
        const auto window = CreateWindow(options);
        EXPECT_FALSE(window);
        if (!window) {
          EXPECT_NE(window.error().message.find("the doorbell is no descriptor"), std::string::npos)
              << window.error().message;
        }
        ::close(bell);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace hvd::transport::shm
