// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pure arithmetic: a run with one part per member, moved in rounds: round r has piece r of every part. No I/O.

#include <vector>

#include "hvd/collective/pattern/slices.h"

namespace hvd::collective::pattern {

class Parts {
 public:
  // Pieces are whole cache lines, and so whole elements.
  Parts(const std::vector<size_t>& part_bytes, size_t most_piece_bytes)
      : piece_bytes_(std::max<size_t>(most_piece_bytes / 64 * 64, 64)), begins_(1, 0) {
    for (const size_t bytes : part_bytes) {
      begins_.push_back(begins_.back() + bytes);
      rounds_ = std::max(rounds_, ChunkCount(bytes, piece_bytes_));
    }
  }

  size_t rounds() const { return rounds_; }
  size_t piece_bytes() const { return piece_bytes_; }
  // Where a member's part begins in the run.
  size_t begin(int member) const { return begins_[member]; }
  // Piece `round` of a member's part, in the run; empty if the part has fewer.
  Range Piece(int member, size_t round) const {
    const Range piece = Chunk(begins_[member + 1] - begins_[member], piece_bytes_, round);
    return {begins_[member] + piece.begin, begins_[member] + piece.end};
  }

 private:
  const size_t piece_bytes_;
  size_t rounds_ = 0;
  std::vector<size_t> begins_;  // one more for the end
};

}  // namespace hvd::collective::pattern
