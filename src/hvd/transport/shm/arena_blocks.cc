// SPDX-License-Identifier: Apache-2.0
// Blocks of the arena: memory that programs use as any other.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "hvd/transport/shm/arena.h"

namespace hvd::transport::shm {
namespace {

constexpr Duration kIdle = std::chrono::seconds(5);
constexpr uint64_t kHugeRounded = 16 << 20;
// So many blocks are given back at a time. Their list is far below the size from which malloc asks this arena.
constexpr size_t kAtOnce = 256;
// The kernel limits the number of mappings, so a child replaces blocks with so little between them by one.
constexpr uint64_t kBridged = 4 << 20;

// Eight sizes per doubling, so that what is freed fits what is wanted next, and at most an eighth is lost.
uint64_t BlockBytes(uint64_t bytes) {
  if (bytes >= kHugeRounded) return RoundUp(bytes, kHugePage);
  return RoundUp(bytes, std::max(PageSize(), std::bit_floor(bytes) / 8));
}

}  // namespace

std::optional<Arena::FreeBlocks::value_type> Arena::TakeFreeBlock(uint64_t bytes) {
  const auto fit = free_blocks_.lower_bound(bytes);
  if (fit == free_blocks_.end() || fit->first > bytes + bytes / 8) return std::nullopt;
  const auto latest = std::prev(free_blocks_.upper_bound(fit->first));
  const FreeBlocks::value_type taken = *latest;
  free_block_bytes_ -= taken.first;
  free_blocks_.erase(latest);
  return taken;
}

bool Arena::KeepBlock(uint64_t offset, uint64_t bytes) {
  if (free_block_bytes_ + bytes > budget_.load(std::memory_order_relaxed) / 4) return false;
  free_blocks_.emplace(bytes, FreeBlock{offset, SteadyClock().Now()});
  free_block_bytes_ += bytes;
  return true;
}

std::vector<Arena::FreeBlocks::value_type> Arena::TakeOld(Time when) {
  std::vector<FreeBlocks::value_type> old;
  for (auto block = free_blocks_.begin(); block != free_blocks_.end() && old.size() < kAtOnce;) {
    if (block->second.freed >= when) {
      ++block;
      continue;
    }
    old.push_back(*block);
    free_block_bytes_ -= block->first;
    block_bytes_ -= block->first;
    block = free_blocks_.erase(block);
  }
  return old;
}

void Arena::GiveOld(Time when) {
  for (;;) {
    std::vector<FreeBlocks::value_type> old;
    {
      const std::lock_guard lock(mutex_);
      old = TakeOld(when);
    }
    if (old.empty()) return;
    for (const auto& [bytes, block] : old) GiveSpan(block.offset, bytes);
  }
}

void Arena::Trim() {
  if (inherited()) return;
  const Time now = SteadyClock().Now();
  {
    const std::lock_guard lock(mutex_);
    if (now < trim_at_) return;
    trim_at_ = now + kIdle / 5;
  }
  GiveOld(now - kIdle);
}

Arena::Block Arena::AllocateBlock(size_t bytes) {
  const uint64_t budget = budget_.load(std::memory_order_relaxed);
  if (inherited() || InFork() || !shareable() || bytes > budget / 8) return {};
  const uint64_t rounded = BlockBytes(std::max(bytes, kLeastBlock));
  Trim();
  {
    const std::lock_guard lock(mutex_);
    if (const auto taken = TakeFreeBlock(rounded)) {
      extents_.emplace(taken->second.offset, Extent{taken->first, kNoClass, true});
      return {map_.data() + taken->second.offset, false};
    }
    if (block_bytes_ + rounded > budget / 4 * 3) return {};
    block_bytes_ += rounded;
  }
  const auto offset = TakeSpan(rounded, rounded >= kHugeRounded ? kHugePage : PageSize());
  const std::lock_guard lock(mutex_);
  if (!offset) {
    block_bytes_ -= rounded;
    return {};
  }
  extents_.emplace(*offset, Extent{rounded, kNoClass, true});
  return {map_.data() + *offset, true};
}

size_t Arena::BytesOf(const void* ptr) const {
  if (Outside(ptr)) return 0;
  const std::lock_guard lock(mutex_);
  const auto found = const_cast<Arena*>(this)->Find(ptr, 0);
  return found == extents_.end() ? 0 : found->second.bytes;
}

bool Arena::BeginFork() {
  if (inherited() || block_bytes_ == free_block_bytes_) return false;
  ++forks_;
  return true;
}

void Arena::EndFork() {
  if (inherited()) {
    forks_ = 0;
    held_.clear();
    return;
  }
  FreeBlocks freed;
  {
    const std::lock_guard lock(mutex_);
    if (forks_ == 0 || --forks_ > 0) return;
    freed.swap(held_);
  }
  for (const auto& [bytes, block] : freed) {
    Recycle(block.offset, Extent{bytes, kNoClass, true}, std::unique_lock(mutex_));
  }
}

void Arena::CopyBlocks() {
  if (forks_ == 0) return;  // the arena has no blocks, or belongs to a parent of the parent
  for (auto first = extents_.begin(); first != extents_.end();) {
    if (!first->second.block) {
      ++first;
      continue;
    }
    const uint64_t begin = first->first;
    auto end = first;
    uint64_t bytes = 0;
    for (; end != extents_.end() && end->second.block && end->first - begin - bytes <= kBridged; ++end) {
      bytes = end->first + end->second.bytes - begin;
    }
    std::byte* const place = map_.data() + begin;
    void* const copy =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (copy != MAP_FAILED) {
      for (; first != end; ++first) {
        std::byte* const to = static_cast<std::byte*>(copy) + (first->first - begin);
        ::madvise(to, first->second.bytes, kPopulateWrite);
        // All of it begins at a page, so memcpy is fast. kernel::Copy may be in its trial in a thread that is not here.
        std::memcpy(to, map_.data() + first->first, first->second.bytes);
      }
    }
    if (copy == MAP_FAILED || ::mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED) {
      // It would write into its parent's memory.
      std::fputs("hvd: a forked process ends, because there is no memory for its copy of its parent's blocks\n",
                 stderr);
      ::_exit(EXIT_FAILURE);
    }
    first = end;
  }
}

}  // namespace hvd::transport::shm
