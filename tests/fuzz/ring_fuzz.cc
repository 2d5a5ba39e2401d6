// SPDX-License-Identifier: Apache-2.0
// Whatever a peer writes into the shared words of a ring, and whenever: neither end leaves the ring's memory or the
// buffers that it was given. Each step of the input is a byte that says what, and what that needs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "hvd/transport/shm/ring.h"

namespace {

using namespace hvd::transport::shm;

constexpr size_t kBytes = RingBytes(kRingMinCapacity);
// Tail, ended, head, writer_waits.
constexpr size_t kWords[] = {0, 8, 128, 256};

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Exactly as long as the ring, so that a byte beyond it is noticed.
  const std::unique_ptr<std::byte, Free> memory(static_cast<std::byte*>(std::aligned_alloc(64, kBytes)));
  std::memset(memory.get(), 0, kBytes);
  auto producer = RingProducer::Open({memory.get(), kBytes});
  auto consumer = RingConsumer::Open({memory.get(), kBytes});
  if (!producer || !consumer) std::abort();
  for (size_t at = 0; at + 10 <= size; at += 10) {
    const uint8_t what = data[at];
    uint64_t value = 0;
    std::memcpy(&value, data + at + 2, sizeof value);
    // Two pieces, of up to two rings together.
    std::vector<std::byte> first(value % 1500), second((value >> 32) % 700);
    const iovec pieces[] = {{first.data(), first.size()}, {second.data(), second.size()}};
    if (what < 80) {
      const auto written = producer->Write(pieces);
      if (written && *written > first.size() + second.size()) std::abort();
    } else if (what < 160) {
      const auto taken = consumer->Read(pieces);
      if (taken && taken->bytes > first.size() + second.size()) std::abort();
    } else if (what < 170) {
      (void)consumer->Idle();
    } else {
      // As a peer that went wrong: a little more or less than is there, or anything.
      std::byte* const word = memory.get() + kWords[what % 4];
      uint64_t old = 0;
      std::memcpy(&old, word, sizeof old);
      const uint64_t bad = data[at + 1] % 2 == 0 ? old + value % 4096 - 2048 : value;
      std::memcpy(word, &bad, what % 4 % 2 == 0 && what % 4 != 3 ? sizeof(uint64_t) : sizeof(uint32_t));
    }
  }
  return 0;
}
