// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/payload.h"

#include <algorithm>

#include "hvd/kernel/kernel.h"

namespace hvd::collective {
namespace {

// Calls visit(piece, offset in the piece, offset in the run, bytes) for every piece that [offset, offset + bytes)
// touches.
template <typename Visit>
void ForRange(const std::vector<Piece>& pieces, size_t offset, size_t bytes, Visit visit) {
  size_t begin = 0;
  for (const Piece& piece : pieces) {
    const size_t from = std::max(offset, begin);
    const size_t to = std::min(offset + bytes, begin + piece.bytes);
    if (from < to) visit(piece, from - begin, from - offset, to - from);
    begin += piece.bytes;
    if (begin >= offset + bytes) return;
  }
}

// Where in memory the element is that begins `in_piece` bytes behind the piece's begin.
size_t InMemory(const Piece& piece, size_t in_piece) {
  return in_piece / SizeOf(piece.type) * SizeOf(piece.memory_type);
}

}  // namespace

void Payload::Add(Piece piece) {
  pieces_.push_back(piece);
  bytes_ += piece.bytes;
  converted_ = converted_ || piece.converted();
}

void Payload::Clear() {
  pieces_.clear();
  bytes_ = 0;
  converted_ = false;
}

void Payload::Gather(size_t offset, size_t bytes, std::byte* to) const {
  ForRange(pieces_, offset, bytes, [&](const Piece& piece, size_t in_piece, size_t in_run, size_t n) {
    if (piece.converted()) {
      kernel::Narrow(piece.memory_type, piece.in + InMemory(piece, in_piece), piece.type, to + in_run,
                     n / SizeOf(piece.type));
    } else {
      kernel::Copy(to + in_run, piece.in + in_piece, n);
    }
  });
}

void Payload::Scatter(size_t offset, size_t bytes, const std::byte* from) const {
  ForRange(pieces_, offset, bytes, [&](const Piece& piece, size_t in_piece, size_t in_run, size_t n) {
    if (piece.out == nullptr) return;
    if (piece.converted()) {
      kernel::Widen(piece.type, from + in_run, piece.memory_type, piece.out + InMemory(piece, in_piece),
                    n / SizeOf(piece.type));
    } else {
      kernel::Copy(piece.out + in_piece, from + in_run, n);
    }
  });
}

}  // namespace hvd::collective
