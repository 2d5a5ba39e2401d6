// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/arena.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>

namespace hvd::transport::shm {
namespace {

constexpr uint64_t kMiB = 1 << 20;

bool AllEqual(const std::byte* data, size_t bytes, std::byte value) {
  return std::all_of(data, data + bytes, [value](std::byte b) { return b == value; });
}

uint64_t ResidentBytes(int fd) {
  struct stat info {};
  ::fstat(fd, &info);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

int InChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// Handlers of another library, registered before those of the arena: this runs before the first descriptor is made.
std::function<void()> g_in_fork;
const int g_registered = ::pthread_atfork(
    [] {
      if (g_in_fork) g_in_fork();
    },
    [] {
      if (g_in_fork) g_in_fork();
    },
    [] {
      if (g_in_fork) g_in_fork();
    });

TEST(Arena, ExtentsAreZeroedAndAligned) {
  Arena arena({.capacity = 256 * kMiB});
  ASSERT_TRUE(arena.shareable()) << arena.why();
  for (int round = 0; round < 2; ++round) {
    std::vector<std::byte*> all;
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{65}, size_t{5000}, size_t{65535}, size_t{65536},
                               size_t{100000}, size_t{kMiB}, size_t{4 * kMiB + 1}, size_t{9 * kMiB}}) {
      auto extent = arena.Allocate(bytes);
      ASSERT_TRUE(extent) << extent.error().message;
      const auto address = reinterpret_cast<uintptr_t>(*extent);
      EXPECT_EQ(address % (bytes >= 4 * kMiB ? 2 * kMiB : bytes >= 65536 ? 4096 : 64), 0u) << bytes;
      EXPECT_TRUE(AllEqual(*extent, bytes, std::byte{0})) << bytes;
      std::memset(*extent, 0xff, bytes);
      all.push_back(*extent);
    }
    for (auto* extent : all) EXPECT_TRUE(arena.Release(extent));
    EXPECT_EQ(arena.extents(), 0u);
  }
}

TEST(Arena, WhatIsFreeServesOtherSizes) {
  Arena arena({.capacity = 512 * kMiB});
  for (size_t bytes = 64; bytes < kMiB; bytes += bytes / 3) {
    std::vector<std::byte*> all;
    for (size_t taken = 0; taken < 8 * kMiB; taken += bytes) all.push_back(*arena.Allocate(bytes));
    for (std::byte* extent : all) EXPECT_TRUE(arena.Release(extent));
  }
  // What is kept, and the last slab of each size.
  EXPECT_LE(arena.committed(), 16 * kMiB + 38 * kMiB / 4);
  EXPECT_EQ(ResidentBytes(arena.fd()), arena.committed());
}

TEST(Arena, ASlabThatIsInUseStaysWhole) {
  Arena arena({.capacity = 256 * kMiB});
  std::mt19937 random(7);
  std::vector<std::pair<std::byte*, size_t>> live;
  for (int round = 0; round < 20000; ++round) {
    if (live.size() > 400 || (!live.empty() && random() % 2 == 0)) {
      auto& chosen = live[random() % live.size()];
      ASSERT_TRUE(AllEqual(chosen.first, chosen.second, static_cast<std::byte>(chosen.second))) << chosen.second;
      ASSERT_TRUE(arena.Release(chosen.first));
      chosen = live.back();
      live.pop_back();
    } else {
      const size_t bytes = 1 + random() % 20000;
      std::byte* extent = *arena.Allocate(bytes);
      ASSERT_TRUE(AllEqual(extent, bytes, std::byte{0}));
      std::memset(extent, static_cast<int>(bytes & 0xff), bytes);
      live.emplace_back(extent, bytes);
    }
  }
}

TEST(Arena, ContainsKnowsExtentsOnly) {
  Arena arena({.capacity = 64 * kMiB});
  auto extent = arena.Allocate(100000);
  ASSERT_TRUE(extent);
  int local = 0;
  EXPECT_EQ(arena.Contains(&local, 4), -1);
  EXPECT_EQ(arena.Contains(nullptr, 0), -1);
  EXPECT_EQ(arena.Contains(*extent, 100000), *extent - arena.base());
  EXPECT_EQ(arena.Contains(*extent + 10, 99990), *extent + 10 - arena.base());
  EXPECT_EQ(arena.Contains(*extent + 10, 1 << 20), -1);
  EXPECT_EQ(arena.Contains(*extent, SIZE_MAX), -1);
  EXPECT_EQ(arena.Contains(arena.base() + 32 * kMiB, 1), -1);
  EXPECT_TRUE(arena.Release(*extent));
  EXPECT_EQ(arena.Contains(*extent, 1), -1);
  EXPECT_FALSE(arena.Release(*extent));
  EXPECT_FALSE(arena.Release(&local));
}

TEST(Arena, AnOperationInFlightKeepsTheExtent) {
  Arena arena({.capacity = 64 * kMiB});
  auto extent = arena.Allocate(2 * kMiB);
  ASSERT_TRUE(extent);
  (*extent)[kMiB] = std::byte{42};
  EXPECT_GE(arena.Pin(*extent + kMiB, 100), 0);
  EXPECT_GE(arena.Pin(*extent + 5, 1), 0);
  EXPECT_TRUE(arena.Release(*extent));
  arena.Unpin(*extent + 5);
  EXPECT_EQ((*extent)[kMiB], std::byte{42});
  EXPECT_FALSE(arena.Release(*extent)) << "the owner has released it, and the operation's pin is not the owner's";
  EXPECT_EQ(arena.extents(), 1u);
  arena.Unpin(*extent + kMiB);
  EXPECT_EQ(arena.extents(), 0u);
}

TEST(Arena, LargeExtentsGoBackToTheSystem) {
  Arena arena({.capacity = 512 * kMiB});
  for (int i = 0; i < 5; ++i) {
    auto extent = arena.Allocate(100 * kMiB + 12345);
    ASSERT_TRUE(extent);
    EXPECT_GE(ResidentBytes(arena.fd()), 100 * kMiB);
    arena.Release(*extent);
    EXPECT_LT(ResidentBytes(arena.fd()), kMiB);
    EXPECT_EQ(arena.committed(), 0u);
  }
}

// Bytes of shared files that huge pages hold in this process.
uint64_t InHugePages() {
  uint64_t kilobytes = 0;
  std::ifstream maps("/proc/self/smaps");
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with("ShmemPmdMapped:")) kilobytes += std::stoull(line.substr(line.find(':') + 1));
  }
  return kilobytes * 1024;
}

TEST(Arena, LargeExtentsLieInHugePagesWhereTheKernelHasThem) {
  auto file = CreateSealedFile("probe", 8 * kMiB);
  ASSERT_TRUE(file);
  ASSERT_TRUE(Commit(file->get(), 0, 8 * kMiB));
  const auto probe = Mapping::Create(file->get(), 8 * kMiB);
  ASSERT_TRUE(probe);
  const bool has_them = ::madvise(probe->data(), probe->bytes(), 25) == 0;  // MADV_COLLAPSE
  const uint64_t before = InHugePages();
  Arena arena({.capacity = 256 * kMiB});
  auto extent = arena.Allocate(100 * kMiB);
  ASSERT_TRUE(extent);
  EXPECT_GE(ResidentBytes(arena.fd()), 100 * kMiB);
  // Not of all: memory may be in pieces.
  if (has_them) {
    EXPECT_GT(InHugePages(), before);
  }
}

TEST(Arena, BudgetIsKept) {
  Arena arena({.capacity = 256 * kMiB});
  arena.SetBudget(10 * kMiB);
  auto first = arena.Allocate(8 * kMiB);
  ASSERT_TRUE(first);
  const auto second = arena.Allocate(4 * kMiB);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kResourceExhausted);
  arena.Release(*first);
  std::vector<std::byte*> medium;
  for (int i = 0; i < 20; ++i) {
    auto extent = arena.Allocate(500000);
    ASSERT_TRUE(extent);
    medium.push_back(*extent);
  }
  for (auto* extent : medium) arena.Release(extent);
  EXPECT_TRUE(arena.Allocate(8 * kMiB)) << "what is kept for reuse must not count against a new extent";
  EXPECT_FALSE(arena.Allocate(uint64_t{1} << 50));
}

TEST(Arena, SpaceIsNotLostToFragments) {
  Arena arena({.capacity = 64 * kMiB});
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::byte*> extents;
    for (int i = 0; i < 6; ++i) {
      auto extent = arena.Allocate(kMiB + random() % (6 * kMiB));
      ASSERT_TRUE(extent) << "round " << round << ": " << extent.error().message;
      extents.push_back(*extent);
    }
    std::shuffle(extents.begin(), extents.end(), random);
    for (auto* extent : extents) arena.Release(extent);
  }
}

TEST(Arena, WorksPrivatelyWithoutMemfd) {
  Arena arena({.capacity = 64 * kMiB, .private_only = true});
  EXPECT_FALSE(arena.shareable());
  EXPECT_FALSE(arena.why().empty());
  for (int i = 0; i < 2; ++i) {
    auto extent = arena.Allocate(8 * kMiB);
    ASSERT_TRUE(extent);
    EXPECT_TRUE(AllEqual(*extent, 8 * kMiB, std::byte{0}));
    std::memset(*extent, 1, 8 * kMiB);
    EXPECT_GE(arena.Contains(*extent, 8 * kMiB), 0);
    arena.Release(*extent);
  }
}

TEST(Arena, SaysWhyWhereASandboxForbidsMemfd) {
  EXPECT_EQ(InChild([] {
              sock_filter filter[] = {
                  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
              };
              const sock_fprog program{std::size(filter), filter};
              if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 0;
              if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return 0;
              Arena arena({.capacity = 64 * kMiB});
              if (arena.shareable() || arena.why().find("memfd") == std::string::npos) return 1;
              return arena.Allocate(kMiB) ? 0 : 2;
            }),
            0);
}

TEST(Arena, FileSizeLimitIsAReasonNotADeath) {
  EXPECT_EQ(InChild([] {
              const rlimit limit{kMiB, kMiB};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              Arena arena({.capacity = 64 * kMiB});
              if (arena.shareable() || arena.why().find("ulimit") == std::string::npos) return 1;
              return arena.Allocate(kMiB) ? 0 : 2;
            }),
            0);
}

TEST(Arena, ForkedChildReadsButOwnsNothing) {
  Arena arena({.capacity = 64 * kMiB});
  auto extent = arena.Allocate(2 * kMiB);
  ASSERT_TRUE(extent);
  std::memset(*extent, 7, 2 * kMiB);
  EXPECT_EQ(InChild([&] {
              if (!AllEqual(*extent, 2 * kMiB, std::byte{7})) return 1;
              const auto refused = arena.Allocate(100);
              if (refused || refused.error().code != Code::kFailedPrecondition) return 2;
              if (!arena.Release(*extent)) return 3;
              return arena.fd() == -1 ? 0 : 4;
            }),
            0);
  EXPECT_TRUE(AllEqual(*extent, 2 * kMiB, std::byte{7}));
  EXPECT_TRUE(arena.Release(*extent));
}

TEST(Arena, ForksWhileOthersAllocate) {
  Arena arena({.capacity = 64 * kMiB});
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop.load()) {
      if (auto extent = arena.Allocate(1000)) arena.Release(*extent);
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(InChild([&] {
                ::alarm(10);
                return arena.Allocate(10) || arena.Release(&i) ? 1 : 0;
              }),
              0);
  }
  stop.store(true);
  busy.join();
}

// No two extents overlap, whatever the threads do: each fills its own with its own number and finds it unchanged.
TEST(Arena, ThreadsGetDifferentMemory) {
  Arena arena({.capacity = 256 * kMiB});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  const unsigned seed = std::random_device{}();
  for (unsigned t = 1; t <= 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(seed + t);
      std::vector<std::pair<std::byte*, size_t>> mine;
      for (int i = 0; i < 2000; ++i) {
        if (mine.size() < 20 && random() % 2 == 0) {
          const size_t bytes = size_t{1} << (random() % 21);
          auto extent = arena.Allocate(bytes);
          if (!extent || !AllEqual(*extent, std::min<size_t>(bytes, 256), std::byte{0})) {
            wrong.fetch_add(1);
            continue;
          }
          std::memset(*extent, static_cast<int>(t), bytes);
          mine.emplace_back(*extent, bytes);
        } else if (!mine.empty()) {
          const size_t at = random() % mine.size();
          const auto [data, bytes] = mine[at];
          if (!AllEqual(data, bytes, static_cast<std::byte>(t))) wrong.fetch_add(1);
          arena.Release(data);
          mine.erase(mine.begin() + static_cast<ptrdiff_t>(at));
        }
      }
      for (const auto& [data, bytes] : mine) arena.Release(data);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0) << "seed " << seed;
  EXPECT_EQ(arena.extents(), 0u);
}

TEST(Arena, ProcessArenaIsOne) {
  EXPECT_EQ(&Arena::Process(), &Arena::Process());
  EXPECT_GT(Arena::Process().capacity(), 0u);
}

TEST(Arena, BlocksAreRecycledAndNotZeroed) {
  Arena arena({.capacity = 256 * kMiB});
  const auto first = arena.AllocateBlock(3 * kMiB + 5);
  ASSERT_NE(first.data, nullptr);
  EXPECT_TRUE(first.zeroed);
  EXPECT_TRUE(AllEqual(first.data, 3 * kMiB + 5, std::byte{0}));
  EXPECT_GE(arena.BytesOf(first.data), 3 * kMiB + 5);
  std::memset(first.data, 1, 3 * kMiB);
  EXPECT_TRUE(arena.Release(first.data));
  EXPECT_EQ(arena.BytesOf(first.data), 0u);
  const auto again = arena.AllocateBlock(3 * kMiB);
  EXPECT_EQ(again.data, first.data);
  EXPECT_FALSE(again.zeroed);
  EXPECT_NE(arena.AllocateBlock(3 * kMiB).data, first.data);
}

TEST(Arena, PinnedBlocksAreNotRecycled) {
  Arena arena({.capacity = 256 * kMiB});
  std::byte* const block = arena.AllocateBlock(kMiB).data;
  EXPECT_GE(arena.Pin(block + 100, 1000), 0);
  EXPECT_TRUE(arena.Release(block));
  EXPECT_NE(arena.AllocateBlock(kMiB).data, block);
  EXPECT_FALSE(arena.Release(block));
  EXPECT_NE(arena.AllocateBlock(kMiB).data, block);
  arena.Unpin(block + 100);
  EXPECT_EQ(arena.AllocateBlock(kMiB).data, block);
}

TEST(Arena, BlocksLeaveRoomForOtherExtents) {
  Arena arena({.capacity = 64 * kMiB});
  EXPECT_EQ(arena.AllocateBlock(9 * kMiB).data, nullptr);
  std::vector<std::byte*> blocks;
  while (std::byte* block = arena.AllocateBlock(2 * kMiB).data) blocks.push_back(block);
  EXPECT_EQ(blocks.size(), 24u);
  EXPECT_TRUE(arena.Allocate(16 * kMiB));
  for (std::byte* block : blocks) EXPECT_TRUE(arena.Release(block));
  // What is kept is bounded, and is no obstacle to others.
  EXPECT_LE(arena.committed(), 32 * kMiB);
  EXPECT_TRUE(arena.Allocate(40 * kMiB));
}

TEST(Arena, AForkedChildHasCopiesOfBlocks) {
  Arena arena({.capacity = 64 * kMiB});
  std::byte* const block = arena.AllocateBlock(kMiB).data;
  std::byte* const next = arena.AllocateBlock(kMiB).data;
  std::memset(block, 1, kMiB);
  std::memset(next, 2, kMiB);
  int to_child[2];
  int to_parent[2];
  ASSERT_EQ(::pipe(to_child) + ::pipe(to_parent), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char word = 0;
    if (::read(to_child[0], &word, 1) != 1) ::_exit(1);  // the parent has written to its blocks
    if (!AllEqual(block, kMiB, std::byte{1}) || !AllEqual(next, kMiB, std::byte{2})) ::_exit(2);
    std::memset(block, 3, kMiB);
    if (arena.Contains(block, 1) >= 0 || arena.Pin(block, 1) >= 0) ::_exit(3);
    if (arena.AllocateBlock(kMiB).data != nullptr) ::_exit(4);
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      std::memset(block, 4, kMiB);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(grandchild, &status, 0);
    if (status != 0 || !AllEqual(block, kMiB, std::byte{3})) ::_exit(5);
    if (!arena.Release(block) || arena.Release(block)) ::_exit(6);
    ::_exit(::write(to_parent[1], "x", 1) == 1 ? 0 : 7);
  }
  std::memset(block, 5, kMiB);
  EXPECT_EQ(::write(to_child[1], "x", 1), 1);
  char word = 0;
  EXPECT_EQ(::read(to_parent[0], &word, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(AllEqual(block, kMiB, std::byte{5}));
  for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) ::close(fd);
  EXPECT_TRUE(arena.Release(block));
}

TEST(Arena, ManyFreeBlocksAreNoObstacle) {
  Arena arena({.capacity = 256 * kMiB});
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(arena.AllocateBlock(Arena::kLeastBlock).data);
  for (std::byte* block : blocks) EXPECT_TRUE(arena.Release(block));
  EXPECT_GE(arena.committed(), 1000 * Arena::kLeastBlock);
  EXPECT_TRUE(arena.Allocate(250 * kMiB));
}

// What a child with copies finds wrong: 0, nothing.
int CheckCopies(const std::vector<std::byte*>& blocks, size_t bytes) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!AllEqual(blocks[i], bytes, static_cast<std::byte>(i))) return 1;
    std::memset(blocks[i], 0xff, bytes);
  }
  return 0;
}

TEST(Arena, ManyBlocksTakeFewMappingsInAForkedChild) {
  Arena arena({.capacity = 256 * kMiB});
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(arena.AllocateBlock(Arena::kLeastBlock).data);
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(arena.Release(blocks[i]));  // every other one stays
    blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(i));
    std::memset(blocks[i], static_cast<int>(i), Arena::kLeastBlock);
  }
  EXPECT_EQ(InChild([&] {
              std::ifstream maps("/proc/self/maps");
              const auto begin = reinterpret_cast<uintptr_t>(arena.base());
              int mappings = 0;
              for (std::string line; std::getline(maps, line);) {
                mappings += std::stoull(line, nullptr, 16) - begin < arena.capacity();
              }
              return mappings > 8 ? 2 : CheckCopies(blocks, Arena::kLeastBlock);
            }),
            0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(AllEqual(blocks[i], Arena::kLeastBlock, static_cast<std::byte>(i)));
  }
}

TEST(Arena, AForkWithoutDescriptorsWaitsForTheCopies) {
  EXPECT_EQ(InChild([] {
              Arena arena({.capacity = 256 * kMiB});
              constexpr size_t kBytes = 16 * kMiB;
              const std::vector<std::byte*> blocks(1, arena.AllocateBlock(kBytes).data);
              std::memset(blocks[0], 0, kBytes);
              const rlimit limit{3, 3};
              ::setrlimit(RLIMIT_NOFILE, &limit);
              const pid_t child = ::fork();
              if (child == 0) ::_exit(CheckCopies(blocks, kBytes));
              std::memset(blocks[0], 7, kBytes);
              int status = 0;
              ::waitpid(child, &status, 0);
              return status == 0 ? 0 : 1;
            }),
            0);
}

TEST(Arena, AHandlerOfAnotherLibraryMayAllocateInsideFork) {
  Arena arena({.capacity = 64 * kMiB});
  ASSERT_EQ(g_registered, 0);
  std::byte* const block = arena.AllocateBlock(kMiB).data;
  std::byte* freed = arena.AllocateBlock(kMiB).data;
  std::memset(block, 1, kMiB);
  std::memset(freed, 2, kMiB);
  g_in_fork = [&] {
    if (arena.AllocateBlock(kMiB).data != nullptr) std::abort();  // would be the parent's, too
    if (freed != nullptr) arena.Release(std::exchange(freed, nullptr));
  };
  EXPECT_EQ(InChild([&] {
              ::alarm(10);
              std::memset(block, 3, kMiB);
              return 0;
            }),
            0);
  g_in_fork = nullptr;
  EXPECT_TRUE(AllEqual(block, kMiB, std::byte{1}));
  EXPECT_NE(arena.AllocateBlock(kMiB).data, nullptr);
}

// A block that another thread frees while a child makes its copies is not used anew before the child has them.
TEST(Arena, ForksWhileOthersRecycleBlocks) {
  Arena arena({.capacity = 256 * kMiB});
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 16; ++i) {
    blocks.push_back(arena.AllocateBlock(kMiB).data);
    std::memset(blocks.back(), i, kMiB);
  }
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop.load()) {
      const auto block = arena.AllocateBlock(kMiB);
      std::memset(block.data, 0xee, kMiB);
      arena.Release(block.data);
    }
  });
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(InChild([&] {
                ::alarm(10);
                return CheckCopies(blocks, kMiB);
              }),
              0);
  }
  stop.store(true);
  busy.join();
  for (std::byte* block : blocks) EXPECT_TRUE(arena.Release(block));
}

}  // namespace
}  // namespace hvd::transport::shm
