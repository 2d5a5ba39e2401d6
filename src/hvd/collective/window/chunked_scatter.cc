// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/chunked_scatter.h"

#include <algorithm>

#include "hvd/collective/window/per_member.h"

namespace hvd::collective::window {
namespace {

// Pieces of all parts lie side by side in a chunk; 1024 members still find room.
pattern::Parts Cut(const Meeting& meeting, const std::vector<size_t>& part_bytes) {
  return {part_bytes, meeting.staging.chunk_bytes / part_bytes.size()};
}

}  // namespace

size_t ScatterDirect(Meeting& meeting, ReduceOp op, DType type, kernel::Scale scale,
                     const std::vector<size_t>& part_bytes, std::byte* to) {
  const pattern::Parts parts = Cut(meeting, part_bytes);
  PerMember<const void*> sources(meeting.members());
  for (int m = 0; m < meeting.members(); ++m) sources[m] = meeting.Source(m, 0) + parts.begin(meeting.me());
  void* target = to;
  kernel::Reduce(op, type, sources.all(), {&target, 1}, part_bytes[meeting.me()] / SizeOf(type), scale);
  meeting.PublishOut(parts.rounds());
  return parts.rounds();
}

ChunkedScatter::ChunkedScatter(Meeting meeting, ReduceOp op, DType type, kernel::Scale scale,
                               const std::vector<size_t>& part_bytes, std::byte* to, const Payload* payload,
                               size_t reduced)
    : meeting_(meeting),
      op_(op),
      type_(type),
      scale_(scale),
      parts_(Cut(meeting, part_bytes)),
      to_(to),
      payload_(payload),
      reduced_count_(reduced),
      in_seen_(meeting.members()),
      out_seen_(meeting.members()),
      sources_(meeting.members()) {
  for (int m = 0; m < meeting_.members(); ++m) {
    if (meeting_.header(m).place != Place::kStaged) in_seen_[m] = parts_.rounds();
  }
  if (meeting_.header(meeting_.me()).place != Place::kStaged) staged_count_ = parts_.rounds();
  out_seen_[meeting_.me()] = reduced;
}

Progress ChunkedScatter::Step() {
  const bool staged = StageRound();
  const bool reduced = ReduceRound();
  // This rank's data may go only when everybody has read it.
  if (reduced_count_ == parts_.rounds() && meeting_.AllOut(&out_seen_, parts_.rounds())) return Progress::kDone;
  return staged || reduced ? Progress::kMoved : Progress::kWaiting;
}

bool ChunkedScatter::StageRound() {
  if (staged_count_ == parts_.rounds()) return false;
  const size_t depth = meeting_.staging.depth;
  if (staged_count_ >= depth && !meeting_.AllOut(&out_seen_, staged_count_ - depth + 1)) return false;
  std::byte* chunk = meeting_.Source(meeting_.me(), staged_count_);
  for (int m = 0; m < meeting_.members(); ++m) {
    const auto piece = parts_.Piece(m, staged_count_);
    payload_->Gather(piece.begin, piece.size(), chunk + parts_.piece_bytes() * m);
  }
  meeting_.PublishIn(++staged_count_);
  in_seen_[meeting_.me()] = staged_count_;
  return true;
}

bool ChunkedScatter::ReduceRound() {
  if (reduced_count_ == parts_.rounds() || !meeting_.AllIn(&in_seen_, reduced_count_ + 1)) return false;
  const int me = meeting_.me();
  const auto piece = parts_.Piece(me, reduced_count_);
  if (piece.size() > 0 && to_ != nullptr) {
    for (int m = 0; m < meeting_.members(); ++m) {
      const bool staged = meeting_.header(m).place == Place::kStaged;
      sources_[m] =
          staged ? meeting_.Source(m, reduced_count_) + parts_.piece_bytes() * me : meeting_.Source(m, 0) + piece.begin;
    }
    void* target = to_ + (piece.begin - parts_.begin(me));
    kernel::Reduce(op_, type_, sources_, {&target, 1}, piece.size() / SizeOf(type_), scale_);
  }
  meeting_.PublishOut(++reduced_count_);
  out_seen_[me] = reduced_count_;
  return true;
}

void ChunkedScatter::CollectAwaited(std::vector<int>* members) const {
  for (int m = 0; m < meeting_.members(); ++m) {
    if (m == meeting_.me()) continue;
    const bool supplied =
        in_seen_[m] >= parts_.rounds() || meeting_.In(m) >= std::min(reduced_count_ + 1, parts_.rounds());
    if (!supplied || meeting_.Out(m) < parts_.rounds()) members->push_back(m);
  }
}

}  // namespace hvd::collective::window
