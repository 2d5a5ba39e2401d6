// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "hvd/topology/cores.h"

namespace hvd::transport::shm {
namespace {

constexpr uint64_t kUnit = 64;
constexpr uint64_t kPageAligned = 64 << 10;  // from here on extents have spans of their own
constexpr uint64_t kHugeAligned = 4 << 20;
constexpr uint64_t kPunch = 1 << 20;
constexpr uint64_t kSlab = 256 << 10;
constexpr uint64_t kCacheLimit = 16 << 20;  // committed but unused, over all sizes below kPunch
constexpr uint64_t kLeastCapacity = 64 << 20;
constexpr uint64_t kHugePiece = 64 << 20;
// For a piece; a virtual machine whose host has yet to find the memory takes 0.2 s for pages of any size.
constexpr auto kHugePatience = std::chrono::seconds(1);

// As in the kernel's headers; not all C libraries have it.
constexpr int kCollapse = 25;

uint64_t HalfOfMemory() {
  return std::max<uint64_t>(static_cast<uint64_t>(topology::TotalMemory()) / 2, kLeastCapacity);
}

// Four sizes per doubling, so that at most a fifth of a block is lost: 64, 128, 192, 256, 320, 384, 448, 512, 640, ...
uint64_t ClassBytes(int size_class) {
  if (size_class < 4) return kUnit * static_cast<uint64_t>(size_class + 1);
  const int doubling = (size_class - 4) / 4;
  return (kUnit << doubling) * static_cast<uint64_t>(5 + (size_class - 4) % 4);
}

int ClassOf(uint64_t bytes) {
  const uint64_t units = (std::max<uint64_t>(bytes, 1) + kUnit - 1) / kUnit;
  if (units <= 4) return static_cast<int>(units) - 1;
  const int doubling = std::bit_width(units - 1) - 3;
  return 4 + 4 * doubling + static_cast<int>((units - 1) >> doubling) - 4;
}

}  // namespace

Arena& Arena::Process(uint64_t capacity) {
  // Never destroyed: user code may hold extents until the last instruction.
  static Arena* const arena = new Arena(Options{.capacity = capacity});
  return *arena;
}

Arena::Arena(Options options) : epoch_(ForkEpoch()) {
  uint64_t capacity = RoundUp(options.capacity > 0 ? options.capacity : HalfOfMemory(), kHugePage);
  for (; capacity >= std::min(kLeastCapacity, RoundUp(std::max<uint64_t>(options.capacity, 1), kHugePage));
       capacity = RoundUp(capacity / 2, kHugePage)) {
    if (options.private_only) {
      why_ = "shared memory was switched off";
    } else if (auto file = CreateSealedFile("hvd-arena", capacity); file) {
      file_ = std::move(*file);
      if (auto probe = Commit(file_.get(), 0, PageSize()); !probe) {  // some kernels know memfd but not fallocate
        why_ = probe.error().message;
        file_.Close();
      }
    } else {
      why_ = file.error().message;
    }
    if (auto map = Mapping::Create(file_.get(), capacity); map) {
      map_ = std::move(*map);
      break;
    }
    if (capacity <= kHugePage) break;
  }
  file_fd_ = file_.get();
  if (shareable()) {
    why_.clear();
    Decommit(file_fd_, 0, PageSize());
    ::madvise(map_.data(), map_.bytes(), MADV_HUGEPAGE);  // once for all of it, so that the mapping stays one piece
  }
  spans_ = Spans(map_.bytes());
  SetBudget(map_.bytes());
}

bool Arena::Charge(uint64_t bytes) {
  const uint64_t budget = budget_.load(std::memory_order_relaxed);
  uint64_t now = committed_.load(std::memory_order_relaxed);
  do {
    if (now + bytes > budget) return false;
  } while (!committed_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
  return true;
}

Status Arena::CommitRange(uint64_t offset, uint64_t bytes) {
  if (!shareable()) return {};
  if (bytes >= kHugeAligned) {
    TakeHugePages(offset, bytes);
    // Only a fault through the mapping follows the huge page hint; fallocate would fill the range with small pages.
    // Refusals (an old kernel, too little memory) are fine: fallocate has the last word.
    if (::madvise(map_.data() + offset, bytes, kPopulateWrite) == 0) return {};
  }
  return Commit(file_fd_, offset, bytes);
}

void Arena::TakeHugePages(uint64_t offset, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes; done += kHugePiece) {
    const auto start = std::chrono::steady_clock::now();
    const uint64_t piece = std::min(kHugePiece, bytes - done);
    for (uint64_t at = 0; at < piece; at += kHugePage) {
      // The kernel does not take a hole for one.
      if (!Commit(file_fd_, offset + done + at, PageSize())) return;
    }
    if (::madvise(map_.data() + offset + done, piece, kCollapse) != 0) return;
    if (std::chrono::steady_clock::now() - start > kHugePatience) return;
  }
}

Result<uint64_t> Arena::TakeSpan(uint64_t bytes, uint64_t align) {
  int64_t offset = -1;
  {
    const std::lock_guard lock(mutex_);
    if (const auto cached = cached_.find(bytes); cached != cached_.end() && !cached->second.empty()) {
      offset = static_cast<int64_t>(cached->second.back());
      cached->second.pop_back();
      cached_bytes_ -= bytes;
    }
  }
  if (offset >= 0) {
    std::memset(map_.data() + offset, 0, bytes);
    return static_cast<uint64_t>(offset);
  }
  if (!Charge(bytes)) {
    FlushCache();
    if (!Charge(bytes)) {
      return Fail(Code::kResourceExhausted,
                  "{} bytes more than the {} in use would exceed the arena's limit of {} bytes", bytes, committed(),
                  budget_.load(std::memory_order_relaxed));
    }
  }
  {
    const std::lock_guard lock(mutex_);
    offset = spans_.Take(bytes, align);
  }
  if (offset < 0) {
    committed_.fetch_sub(bytes, std::memory_order_relaxed);
    return Fail(Code::kResourceExhausted, "no free range of {} bytes in the arena of {} bytes", bytes, capacity());
  }
  if (auto done = CommitRange(static_cast<uint64_t>(offset), bytes); !done) {
    GiveSpan(static_cast<uint64_t>(offset), bytes);
    return Fail(done.error());
  }
  return static_cast<uint64_t>(offset);
}

void Arena::GiveSpan(uint64_t offset, uint64_t bytes) {
  if (shareable()) {
    Decommit(file_fd_, offset, bytes);
  } else {
    ::madvise(map_.data() + offset, bytes, MADV_DONTNEED);
  }
  committed_.fetch_sub(bytes, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  spans_.Give(offset, bytes);
}

bool Arena::Cache(uint64_t offset, uint64_t bytes) {
  if (bytes >= kPunch || cached_bytes_ + bytes > kCacheLimit) return false;
  cached_[bytes].push_back(offset);
  cached_bytes_ += bytes;
  return true;
}

void Arena::FlushCache() {
  std::map<uint64_t, std::vector<uint64_t>> cached;
  {
    const std::lock_guard lock(mutex_);
    cached.swap(cached_);
    cached_bytes_ = 0;
  }
  for (const auto& [bytes, offsets] : cached) {
    for (const uint64_t offset : offsets) GiveSpan(offset, bytes);
  }
  GiveOld(Time::max());
}

std::optional<uint64_t> Arena::TakeBlock(int size_class) {
  auto& open = open_[static_cast<size_t>(size_class)];
  if (open.empty()) return std::nullopt;
  const uint64_t at = *open.begin();
  Slab& slab = slabs_.at(at);
  const uint64_t block = slab.free.back();
  slab.free.pop_back();
  if (slab.free.empty()) open.erase(open.begin());
  return at + block * ClassBytes(size_class);
}

bool Arena::GiveBlock(uint64_t offset, uint64_t* at) {
  const auto found = std::prev(slabs_.upper_bound(offset));
  *at = found->first;
  Slab& slab = found->second;
  auto& open = open_[slab.size_class];
  if (slab.free.empty()) open.insert(*at);
  slab.free.push_back(static_cast<uint16_t>((offset - *at) / ClassBytes(slab.size_class)));
  // The last one stays: the next small array would make it anew.
  if (slab.free.size() < slab.blocks || open.size() == 1) return false;
  open.erase(*at);
  slabs_.erase(found);
  return true;
}

Result<std::byte*> Arena::AllocateSmall(size_t bytes) {
  const int size_class = ClassOf(bytes);
  const uint64_t block = ClassBytes(size_class);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (const auto offset = TakeBlock(size_class)) {
        lock.unlock();
        std::memset(map_.data() + *offset, 0, block);
        lock.lock();
        extents_.emplace(*offset, Extent{block, static_cast<uint8_t>(size_class)});
        return map_.data() + *offset;
      }
    }
    HVD_ASSIGN_OR_RETURN(const uint64_t offset, TakeSpan(kSlab, PageSize()));
    const std::lock_guard lock(mutex_);
    Slab slab{static_cast<uint8_t>(size_class), static_cast<uint16_t>(kSlab / block), {}};
    for (uint16_t number = slab.blocks; number-- > 0;) slab.free.push_back(number);
    slabs_.emplace(offset, std::move(slab));
    open_[static_cast<size_t>(size_class)].insert(offset);
  }
}

Result<std::byte*> Arena::AllocateSpan(size_t bytes) {
  const uint64_t align = bytes >= kHugeAligned ? kHugePage : PageSize();
  const uint64_t rounded = RoundUp(bytes < kPunch ? ClassBytes(ClassOf(bytes)) : bytes, align);
  HVD_ASSIGN_OR_RETURN(const uint64_t offset, TakeSpan(rounded, align));
  const std::lock_guard lock(mutex_);
  extents_.emplace(offset, Extent{rounded, kNoClass});
  return map_.data() + offset;
}

Result<std::byte*> Arena::Allocate(size_t bytes) {
  if (inherited() || InFork()) {
    return Fail(Code::kFailedPrecondition, "this is a forked child: it cannot take memory from its parent's arena");
  }
  if (bytes > capacity()) {
    return Fail(Code::kResourceExhausted, "{} bytes are more than the arena's {} bytes", bytes, capacity());
  }
  return bytes < kPageAligned ? AllocateSmall(bytes) : AllocateSpan(bytes);
}

Arena::Extents::iterator Arena::Find(const void* ptr, size_t bytes) {
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(ptr) - map_.data());
  auto after = extents_.upper_bound(offset);
  if (after == extents_.begin()) return extents_.end();
  const auto found = std::prev(after);
  const uint64_t inside = offset - found->first;
  return inside < found->second.bytes && bytes <= found->second.bytes - inside ? found : extents_.end();
}

int64_t Arena::Contains(const void* ptr, size_t bytes) const {
  if (Outside(ptr)) return -1;
  const std::lock_guard lock(mutex_);
  const auto found = const_cast<Arena*>(this)->Find(ptr, bytes);
  if (found == extents_.end() || (found->second.block && inherited())) return -1;
  return static_cast<const std::byte*>(ptr) - map_.data();
}

int64_t Arena::Pin(const void* ptr, size_t bytes) {
  if (Outside(ptr)) return -1;
  const std::lock_guard lock(mutex_);
  const auto found = Find(ptr, bytes);
  if (found == extents_.end() || (found->second.block && inherited())) return -1;
  ++found->second.pins;
  return static_cast<const std::byte*>(ptr) - map_.data();
}

void Arena::Unpin(const void* ptr) {
  std::unique_lock lock(mutex_);
  const auto found = Find(ptr, 0);
  if (--found->second.pins > 0 || !found->second.released) return;
  const auto [offset, extent] = *found;
  extents_.erase(found);
  Recycle(offset, extent, std::move(lock));
}

bool Arena::Release(const void* ptr) {
  if (Outside(ptr)) return false;
  std::unique_lock lock(mutex_);
  const auto found = Find(ptr, 0);
  if (found == extents_.end() || found->second.released) return false;
  found->second.released = true;
  if (found->second.pins > 0) return true;
  const auto [offset, extent] = *found;
  extents_.erase(found);
  Recycle(offset, extent, std::move(lock));
  return true;
}

void Arena::Recycle(uint64_t offset, Extent extent, std::unique_lock<ForkMutex> lock) {
  if (inherited()) {
    if (extent.block) ::madvise(map_.data() + offset, extent.bytes, MADV_DONTNEED);
    return;
  }
  if (extent.block && forks_ > 0) {
    held_.emplace(extent.bytes, FreeBlock{offset, {}});
    return;
  }
  if (extent.block) {
    if (KeepBlock(offset, extent.bytes)) return;
    block_bytes_ -= extent.bytes;
  } else if (extent.size_class != kNoClass) {
    if (!GiveBlock(offset, &offset)) return;
    extent.bytes = kSlab;
  }
  if (!extent.block && Cache(offset, extent.bytes)) return;
  lock.unlock();
  GiveSpan(offset, extent.bytes);
}

size_t Arena::extents() const {
  const std::lock_guard lock(mutex_);
  return extents_.size();
}

}  // namespace hvd::transport::shm
