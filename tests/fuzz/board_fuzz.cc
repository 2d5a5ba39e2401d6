// SPDX-License-Identifier: Apache-2.0
// Whatever stands on the board: what a rank reads there stays inside of it, and names a rank of this host or none.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "hvd/transport/shm/board.h"

namespace {

using hvd::transport::shm::Board;

constexpr int kRanks = 3;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<hvd::Rank> ranks = {0, 1, 2};
  const size_t bytes = Board::Bytes(kRanks);
  const std::unique_ptr<std::byte, Free> memory(
      static_cast<std::byte*>(std::aligned_alloc(128, (bytes + 127) / 128 * 128)));
  std::memset(memory.get(), 0, bytes);
  if (!Board::Format(memory.get(), ranks, 1)) std::abort();
  // A word somewhere, as often as the input has them.
  for (size_t at = 0; at + 10 <= size; at += 10) {
    uint16_t where = 0;
    std::memcpy(&where, data + at, sizeof where);
    std::memcpy(memory.get() + where % (bytes / 8) * 8, data + at + 2, 8);
  }
  (void)Board::Check(memory.get(), ranks, 1);
  Board board(memory.get(), kRanks, 0, 4711);
  for (int local = 0; local < kRanks; ++local) {
    if (board.reason(local).size() > hvd::transport::kMaxReasonBytes) std::abort();
    (void)board.blamed(local);
    (void)board.state(local);
    (void)board.pid(local);
    (void)board.probe_word(local);
    (void)board.ended(local);
    board.Ring(local);
  }
  (void)board.cause();
  if (const int author = board.cause_author(); author < -1 || author >= kRanks) std::abort();
  board.RingAll();
  (void)board.SetCause({hvd::transport::Cause::kDied, 1, 0, 0});
  return 0;
}
