// SPDX-License-Identifier: Apache-2.0
#pragma once
// A byte ring with one producer and one consumer, in memory that two processes (or threads) map.
//
// Layout of the memory, which starts zeroed (an empty ring):
//     0  u64 tail           bytes ever written           stored by the producer
//     8  u32 ended          1: nothing more will come    stored by the producer
//   128  u64 head           bytes ever read              stored by the consumer
//   256  u32 writer_waits   1: the producer found no room and wants its doorbell rung; set by the producer, cleared by
//                           both
//   384  data               as many bytes as the largest power of two that fits
//
// Each side keeps its own index in private memory and checks the other's on every use: a peer that writes nonsense into
// the shared words ends the stream with kInternal, it never moves us out of the data area.
//
// Thread safety: one producer and one consumer, each used by one thread at a time.
// Lifetime: the memory outlives both.

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "hvd/base/result.h"

namespace hvd::transport::shm {

inline constexpr size_t kRingHeaderBytes = 384;
inline constexpr size_t kRingMinCapacity = 1024;
// What a ring of `capacity` data bytes (a power of two) takes. The memory must be aligned to 64 bytes.
constexpr size_t RingBytes(size_t capacity) { return kRingHeaderBytes + capacity; }

struct RingHeader;

// Both ends check the memory: kInvalidArgument if it is too small or badly aligned.
class RingProducer {
 public:
  static Result<RingProducer> Open(std::span<std::byte> memory);
  // Copies what fits; 0 if nothing does, and then the consumer's next read says that the writer waited.
  Result<size_t> Write(std::span<const iovec> data);
  void End();

 private:
  RingProducer(RingHeader* header, std::byte* data, size_t capacity);
  // kInternal if the consumer's index is impossible.
  Result<size_t> Room(uint64_t head) const;

  RingHeader* header_;
  std::byte* data_;
  size_t capacity_;
  uint64_t tail_;
  uint64_t seen_head_;  // the consumer's index when last looked at; spares its cache line while there is room
};

class RingConsumer {
 public:
  struct Taken {
    size_t bytes = 0;
    bool writer_waited = false;  // ring the producer's doorbell
  };

  static Result<RingConsumer> Open(std::span<std::byte> memory);
  // Copies what is there. An empty ring that has ended is kUnknown.
  Result<Taken> Read(std::span<const iovec> into);
  // Two loads of one cache line: no bytes, and no end.
  bool Idle() const;

 private:
  RingConsumer(RingHeader* header, std::byte* data, size_t capacity);

  RingHeader* header_;
  std::byte* data_;
  size_t capacity_;
  uint64_t head_;
};

}  // namespace hvd::transport::shm
