// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that local peers can map: one sparse memfd per process, handed out in *extents*.
//
// An extent is committed before it is handed out, so touching it cannot end in SIGBUS; it is zeroed; it starts at a
// multiple of 64 bytes (of a page from 64 KiB, of 2 MiB from 4 MiB). Below 1 MiB sizes are rounded up to one of four
// per doubling, so that what is freed fits what is wanted next. Below 64 KiB extents come from slabs of one size, the
// lowest slab first, so that others run empty; an empty slab serves any size again. Of what is free a bounded amount
// stays committed; freed extents of 1 MiB and more go back to the system at once. Where memfd is not to be had the
// arena works as private memory, and shareable() is false.
//
// A *block* is an extent for memory that a program uses as any other: results of operations, and blocks of a heap. It
// is not zeroed if it was used before, because what is freed serves the next block of about the same size. Free blocks
// are bounded, and go back to the system after some seconds. A forked child gets private copies of all blocks. While it
// makes them, blocks that are freed stay where they are.
//
// Thread safety: everything. In a forked child Contains, Pin and Release work, but Contains knows no blocks;
// Allocate and AllocateBlock fail, and nothing but copies is ever given back to the system: the memory is still the
// parent's. Lifetime: the process's arena lives until the process ends, longer than any engine.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/result.h"
#include "hvd/transport/shm/fork.h"
#include "hvd/transport/shm/memory.h"
#include "hvd/transport/shm/spans.h"

namespace hvd::transport::shm {

class Arena : private ForkCopy {
 public:
  struct Options {
    uint64_t capacity =
        0;  // address space and first budget; 0: half of the memory that the machine, or the container, has
    bool private_only = false;  // as if there were no memfd
  };

  // The one of this process. `capacity` counts in the first call only.
  static Arena& Process(uint64_t capacity = 0);

  explicit Arena(Options options);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A new extent. kResourceExhausted: over the budget, or the machine has no memory.
  Result<std::byte*> Allocate(size_t bytes);
  struct Block {
    std::byte* data = nullptr;  // null: over the limit for blocks, or the machine has no memory
    bool zeroed = false;
  };
  // Blocks take at most three quarters of the budget, and one an eighth. At least kLeastBlock bytes.
  Block AllocateBlock(size_t bytes);
  static constexpr size_t kLeastBlock = 64 << 10;
  // The bytes that the extent of a block has; 0 where `ptr` points into none.
  size_t BytesOf(const void* ptr) const;
  // Gives blocks back to the system that have been free for a while.
  void Trim();

  // Ends the owner's use of the extent that `ptr` points into. False if it points into none, or into one that its owner
  // released before.
  bool Release(const void* ptr);
  // The offset of [ptr, ptr + bytes) if it lies inside one extent, else -1. Two compares for memory outside the arena.
  int64_t Contains(const void* ptr, size_t bytes) const;
  // As Contains. Inside one, the extent stays until Unpin, also when its owner releases it: what an operation does with
  // its buffers.
  int64_t Pin(const void* ptr, size_t bytes);
  void Unpin(const void* ptr);

  // This is a forked child, and the arena its parent's.
  bool inherited() const { return epoch_ != ForkEpoch(); }
  bool shareable() const { return file_fd_ >= 0; }
  // Why not; empty if shareable.
  const std::string& why() const { return why_; }
  int fd() const { return file_.get(); }
  std::byte* base() const { return map_.data(); }
  uint64_t capacity() const { return map_.bytes(); }

  void SetBudget(uint64_t bytes) { budget_.store(bytes, std::memory_order_relaxed); }
  uint64_t committed() const { return committed_.load(std::memory_order_relaxed); }
  size_t extents() const;

 private:
  struct Extent {
    uint64_t bytes;
    uint8_t size_class;  // kNoClass for one with its own span
    bool block = false;
    bool released = false;  // by its owner
    uint32_t pins = 0;
  };
  struct FreeBlock {
    uint64_t offset;
    Time freed;
  };
  using FreeBlocks = std::multimap<uint64_t, FreeBlock>;  // by bytes
  using Extents = std::map<uint64_t, Extent>;
  static constexpr int kClasses = 38;
  static constexpr uint8_t kNoClass = 255;

  Extents::iterator Find(const void* ptr, size_t bytes);
  bool Outside(const void* ptr) const {
    return reinterpret_cast<uintptr_t>(ptr) - reinterpret_cast<uintptr_t>(map_.data()) >= map_.bytes();
  }
  Result<std::byte*> AllocateSmall(size_t bytes);
  Result<std::byte*> AllocateSpan(size_t bytes);
  // A committed, zeroed range, or why not. Called without the lock: committing 1 GiB takes a while.
  Result<uint64_t> TakeSpan(uint64_t bytes, uint64_t align);
  void GiveSpan(uint64_t offset, uint64_t bytes);
  // With the lock: keeps a free span for the next taker. False: it shall be given back.
  bool Cache(uint64_t offset, uint64_t bytes);
  // With the lock: a block of a small size, if a slab has one.
  std::optional<uint64_t> TakeBlock(int size_class);
  // With the lock. True: its slab is empty, and no slab any more; the span is the caller's.
  bool GiveBlock(uint64_t offset, uint64_t* slab);
  void FlushCache();
  // Gives an extent that nobody uses any more to whoever may use it next.
  void Recycle(uint64_t offset, Extent extent, std::unique_lock<ForkMutex> lock);
  bool BeginFork() override;
  void CopyBlocks() override;
  void EndFork() override;
  // With the lock: the most recently freed block of about this size, or none.
  std::optional<FreeBlocks::value_type> TakeFreeBlock(uint64_t bytes);
  // With the lock: keeps a block for the next taker. False: it shall be given back.
  bool KeepBlock(uint64_t offset, uint64_t bytes);
  // With the lock: takes out some of the free blocks that have been so since before `when`; empty: there are none.
  std::vector<FreeBlocks::value_type> TakeOld(Time when);
  // Gives all of those back to the system.
  void GiveOld(Time when);
  Status CommitRange(uint64_t offset, uint64_t bytes);
  // Huge pages for a part of the range, or all of it, where the kernel has them (from Linux 6.1 on it may give them to
  // shared files whatever it does by itself) and does not look for them for long. Quicker than small ones, too.
  void TakeHugePages(uint64_t offset, uint64_t bytes);
  bool Charge(uint64_t bytes);

  Fd file_;
  int file_fd_ = -1;
  std::string why_;
  Mapping map_;
  const unsigned epoch_;
  std::atomic<uint64_t> budget_{0};
  std::atomic<uint64_t> committed_{0};

  mutable ForkMutex mutex_;
  Extents extents_;
  Spans spans_{0};
  struct Slab {
    uint8_t size_class;
    uint16_t blocks;
    std::vector<uint16_t> free;  // numbers of blocks
  };
  std::map<uint64_t, Slab> slabs_;
  std::array<std::set<uint64_t>, kClasses> open_;     // slabs with a free block, by class
  std::map<uint64_t, std::vector<uint64_t>> cached_;  // committed spans below kPunch, by bytes
  uint64_t cached_bytes_ = 0;
  FreeBlocks free_blocks_;
  uint64_t free_block_bytes_ = 0;
  uint64_t block_bytes_ = 0;  // of all blocks, free ones included
  Time trim_at_{};
  int forks_ = 0;    // whose children are making their copies
  FreeBlocks held_;  // freed meanwhile
  ForkLock fork_lock_{mutex_, this};
};

}  // namespace hvd::transport::shm
