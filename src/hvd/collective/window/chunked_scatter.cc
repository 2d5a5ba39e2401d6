// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/chunked_scatter.h"

#include <algorithm>

namespace hvd::collective::window {

ChunkedScatter::ChunkedScatter(Meeting meeting, ReduceOp op, DType type, kernel::Scale scale,
                               const std::vector<size_t>& part_bytes, std::byte* to, const Payload* payload)
    : meeting_(meeting),
      op_(op),
      type_(type),
      scale_(scale),
      begins_(1, 0),
      to_(to),
      payload_(payload),
      // Whole cache lines, and so whole elements. 1024 members still find room in a chunk.
      piece_bytes_(std::max<size_t>(meeting.staging.chunk_bytes / part_bytes.size() / 64 * 64, 64)),
      in_seen_(meeting.members()),
      out_seen_(meeting.members()),
      sources_(meeting.members()) {
  for (const size_t bytes : part_bytes) {
    begins_.push_back(begins_.back() + bytes);
    rounds_ = std::max(rounds_, pattern::ChunkCount(bytes, piece_bytes_));
  }
  for (int m = 0; m < meeting_.members(); ++m) {
    if (meeting_.header(m).place != Place::kStaged) in_seen_[m] = rounds_;
  }
  if (meeting_.header(meeting_.me()).place != Place::kStaged) staged_count_ = rounds_;
}

pattern::Range ChunkedScatter::PieceOf(int member, size_t round) const {
  const auto piece = pattern::Chunk(begins_[member + 1] - begins_[member], piece_bytes_, round);
  return {begins_[member] + piece.begin, begins_[member] + piece.end};
}

Progress ChunkedScatter::Step() {
  const bool staged = StageRound();
  const bool reduced = ReduceRound();
  // This rank's data may go only when everybody has read it.
  if (reduced_count_ == rounds_ && AllReached(out_seen_, rounds_, false)) return Progress::kDone;
  return staged || reduced ? Progress::kMoved : Progress::kWaiting;
}

bool ChunkedScatter::StageRound() {
  if (staged_count_ == rounds_) return false;
  const size_t depth = meeting_.staging.depth;
  if (staged_count_ >= depth && !AllReached(out_seen_, staged_count_ - depth + 1, false)) return false;
  std::byte* chunk = meeting_.Source(meeting_.me(), staged_count_);
  for (int m = 0; m < meeting_.members(); ++m) {
    const auto piece = PieceOf(m, staged_count_);
    payload_->Gather(piece.begin, piece.size(), chunk + piece_bytes_ * m);
  }
  meeting_.PublishIn(++staged_count_);
  in_seen_[meeting_.me()] = staged_count_;
  return true;
}

bool ChunkedScatter::ReduceRound() {
  if (reduced_count_ == rounds_ || !AllReached(in_seen_, reduced_count_ + 1, true)) return false;
  const int me = meeting_.me();
  const auto piece = PieceOf(me, reduced_count_);
  if (piece.size() > 0 && to_ != nullptr) {
    for (int m = 0; m < meeting_.members(); ++m) {
      const bool staged = meeting_.header(m).place == Place::kStaged;
      sources_[m] =
          staged ? meeting_.Source(m, reduced_count_) + piece_bytes_ * me : meeting_.Source(m, 0) + piece.begin;
    }
    void* target = to_ + (piece.begin - begins_[me]);
    kernel::Reduce(op_, type_, sources_, {&target, 1}, piece.size() / SizeOf(type_), scale_);
  }
  meeting_.PublishOut(++reduced_count_);
  out_seen_[me] = reduced_count_;
  return true;
}

bool ChunkedScatter::AllReached(std::vector<uint64_t>& seen, uint64_t wanted, bool in) {
  for (int m = 0; m < meeting_.members(); ++m) {
    if (seen[m] >= wanted) continue;
    seen[m] = in ? meeting_.In(m) : meeting_.Out(m);
    if (seen[m] < wanted) return false;
  }
  return true;
}

void ChunkedScatter::CollectAwaited(std::vector<int>* members) const {
  for (int m = 0; m < meeting_.members(); ++m) {
    if (m == meeting_.me()) continue;
    const bool supplied = in_seen_[m] >= rounds_ || meeting_.In(m) >= std::min(reduced_count_ + 1, rounds_);
    if (!supplied || meeting_.Out(m) < rounds_) members->push_back(m);
  }
}

}  // namespace hvd::collective::window
