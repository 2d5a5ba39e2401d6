// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/shm/ring.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "hvd/kernel/kernel.h"

namespace hvd::transport::shm {

struct RingHeader {
  alignas(64) std::atomic<uint64_t> tail;
  std::atomic<uint32_t> ended;
  std::byte pad0[128 - 12 - 4];
  std::atomic<uint64_t> head;
  std::byte pad1[128 - 8];
  std::atomic<uint32_t> writer_waits;
  std::byte pad2[128 - 4];
};
static_assert(sizeof(RingHeader) == kRingHeaderBytes);
static_assert(offsetof(RingHeader, head) == 128 && offsetof(RingHeader, writer_waits) == 256);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

namespace {

struct Parts {
  RingHeader* header;
  std::byte* data;
  size_t capacity;
};

Result<Parts> Divide(std::span<std::byte> memory) {
  if (memory.size() < RingBytes(kRingMinCapacity) || reinterpret_cast<uintptr_t>(memory.data()) % 64 != 0) {
    return Fail(Code::kInvalidArgument, "no place for a ring: {} bytes at {}", memory.size(), fmt::ptr(memory.data()));
  }
  // The memory is shared and starts zeroed, which is a valid header: it is looked at, not constructed.
  return Parts{reinterpret_cast<RingHeader*>(memory.data()), memory.data() + kRingHeaderBytes,
               std::bit_floor(memory.size() - kRingHeaderBytes)};
}

}  // namespace

RingProducer::RingProducer(RingHeader* header, std::byte* data, size_t capacity)
    : header_(header),
      data_(data),
      capacity_(capacity),
      tail_(header->tail.load(std::memory_order_relaxed)),
      seen_head_(header->head.load(std::memory_order_acquire)) {}

Result<RingProducer> RingProducer::Open(std::span<std::byte> memory) {
  HVD_ASSIGN_OR_RETURN(const Parts parts, Divide(memory));
  return RingProducer(parts.header, parts.data, parts.capacity);
}

Result<size_t> RingProducer::Room(uint64_t head) const {
  const uint64_t used = tail_ - head;
  if (used > capacity_) return Fail(Code::kInternal, "the ring's reader wrote an impossible index");
  return capacity_ - static_cast<size_t>(used);
}

Result<size_t> RingProducer::Write(std::span<const iovec> data) {
  size_t wanted = 0;
  for (const iovec& piece : data) wanted += piece.iov_len;
  HVD_ASSIGN_OR_RETURN(size_t room, Room(seen_head_));
  if (room < wanted) {
    // Acquire: the consumer has copied out what it freed.
    seen_head_ = header_->head.load(std::memory_order_acquire);
    HVD_ASSIGN_OR_RETURN(room, Room(seen_head_));
  }
  if (room == 0 && wanted > 0) {
    // Set the flag, then look again; the consumer moves head, then looks at the flag. Both are seq_cst, so at least one
    // of us sees the other.
    header_->writer_waits.store(1, std::memory_order_seq_cst);
    seen_head_ = header_->head.load(std::memory_order_seq_cst);
    HVD_ASSIGN_OR_RETURN(room, Room(seen_head_));
    if (room == 0) return size_t{0};
    header_->writer_waits.store(0, std::memory_order_relaxed);
  }
  size_t written = 0;
  for (const iovec& piece : data) {
    const size_t length = std::min(piece.iov_len, room - written);
    if (length == 0) continue;
    const size_t at = static_cast<size_t>(tail_ + written) & (capacity_ - 1);
    const size_t first = std::min(length, capacity_ - at);
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    kernel::Copy(data_ + at, from, first);
    if (length > first) kernel::Copy(data_, from + first, length - first);
    written += length;
  }
  tail_ += written;
  header_->tail.store(tail_, std::memory_order_release);
  return written;
}

void RingProducer::End() { header_->ended.store(1, std::memory_order_release); }

RingConsumer::RingConsumer(RingHeader* header, std::byte* data, size_t capacity)
    : header_(header), data_(data), capacity_(capacity), head_(header->head.load(std::memory_order_relaxed)) {}

Result<RingConsumer> RingConsumer::Open(std::span<std::byte> memory) {
  HVD_ASSIGN_OR_RETURN(const Parts parts, Divide(memory));
  return RingConsumer(parts.header, parts.data, parts.capacity);
}

bool RingConsumer::Idle() const {
  return header_->tail.load(std::memory_order_acquire) == head_ && header_->ended.load(std::memory_order_acquire) == 0;
}

Result<RingConsumer::Taken> RingConsumer::Read(std::span<const iovec> into) {
  uint64_t there = header_->tail.load(std::memory_order_acquire) - head_;
  if (there == 0) {
    if (header_->ended.load(std::memory_order_acquire) == 0) return Taken{};
    // The producer stores its last tail before it ends.
    there = header_->tail.load(std::memory_order_acquire) - head_;
    if (there == 0) return Fail(Code::kUnknown, "the other side is gone");
  }
  if (there > capacity_) return Fail(Code::kInternal, "the ring's writer wrote an impossible index");
  Taken taken;
  for (const iovec& piece : into) {
    const size_t length = std::min<size_t>(piece.iov_len, there - taken.bytes);
    if (length == 0) continue;
    const size_t at = static_cast<size_t>(head_ + taken.bytes) & (capacity_ - 1);
    const size_t first = std::min(length, capacity_ - at);
    auto* to = static_cast<std::byte*>(piece.iov_base);
    kernel::Copy(to, data_ + at, first);
    if (length > first) kernel::Copy(to + first, data_, length - first);
    taken.bytes += length;
  }
  head_ += taken.bytes;
  header_->head.store(head_, std::memory_order_seq_cst);  // pairs with the producer's wait, see Write
  if (header_->writer_waits.load(std::memory_order_seq_cst) != 0) {
    header_->writer_waits.store(0, std::memory_order_relaxed);
    taken.writer_waited = true;
  }
  return taken;
}

}  // namespace hvd::transport::shm
