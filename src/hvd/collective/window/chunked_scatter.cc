// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/chunked_scatter.h"

#include <algorithm>

#include "hvd/collective/window/per_member.h"

namespace hvd::collective::window {
namespace {

// Pieces of all parts lie side by side in a chunk; 1024 members still find room.
pattern::Parts Cut(const PositionView& view, const std::vector<size_t>& part_bytes) {
  return {part_bytes, view.staging.chunk_bytes / part_bytes.size()};
}

}  // namespace

size_t ScatterDirect(PositionView& view, ReduceOp op, DType type, kernel::Scale scale,
                     const std::vector<size_t>& part_bytes, std::byte* to) {
  const pattern::Parts parts = Cut(view, part_bytes);
  PerMember<const void*> sources(view.members());
  for (int m = 0; m < view.members(); ++m) sources[m] = view.Source(m, 0) + parts.begin(view.me());
  void* target = to;
  kernel::Reduce(op, type, sources.all(), {&target, 1}, part_bytes[view.me()] / SizeOf(type), scale);
  view.PublishOut(parts.rounds());
  return parts.rounds();
}

ChunkedScatter::ChunkedScatter(PositionView view, ReduceOp op, DType type, kernel::Scale scale,
                               const std::vector<size_t>& part_bytes, std::byte* to, const Payload* payload,
                               size_t reduced)
    : view_(view),
      op_(op),
      type_(type),
      scale_(scale),
      parts_(Cut(view, part_bytes)),
      to_(to),
      payload_(payload),
      reduced_count_(reduced),
      in_seen_(view.members()),
      out_seen_(view.members()),
      sources_(view.members()) {
  view_.most_chunks = parts_.rounds();
  for (int m = 0; m < view_.members(); ++m) {
    if (view_.place(m).location != DataLocation::kStaged) in_seen_[m] = parts_.rounds();
  }
  if (view_.place(view_.me()).location != DataLocation::kStaged) staged_count_ = parts_.rounds();
  out_seen_[view_.me()] = reduced;
}

Progress ChunkedScatter::Step() {
  const bool staged = StageRound();
  const bool reduced = ReduceRound();
  // This rank's data may go only when everybody has read it.
  if (reduced_count_ == parts_.rounds() && view_.AllOut(&out_seen_, parts_.rounds())) return Progress::kDone;
  return staged || reduced ? Progress::kMoved : Progress::kWaiting;
}

bool ChunkedScatter::StageRound() {
  if (staged_count_ == parts_.rounds()) return false;
  const size_t depth = view_.staging.depth;
  if (staged_count_ >= depth && !view_.AllOut(&out_seen_, staged_count_ - depth + 1)) return false;
  std::byte* chunk = view_.Source(view_.me(), staged_count_);
  for (int m = 0; m < view_.members(); ++m) {
    const auto piece = parts_.Piece(m, staged_count_);
    payload_->Gather(piece.begin, piece.size(), chunk + parts_.piece_bytes() * m);
  }
  view_.PublishIn(++staged_count_);
  in_seen_[view_.me()] = staged_count_;
  return true;
}

bool ChunkedScatter::ReduceRound() {
  if (reduced_count_ == parts_.rounds() || !view_.AllIn(&in_seen_, reduced_count_ + 1)) return false;
  const int me = view_.me();
  const auto piece = parts_.Piece(me, reduced_count_);
  if (piece.size() > 0 && to_ != nullptr) {
    for (int m = 0; m < view_.members(); ++m) {
      const bool staged = view_.place(m).location == DataLocation::kStaged;
      sources_[m] =
          staged ? view_.Source(m, reduced_count_) + parts_.piece_bytes() * me : view_.Source(m, 0) + piece.begin;
    }
    void* target = to_ + (piece.begin - parts_.begin(me));
    kernel::Reduce(op_, type_, sources_, {&target, 1}, piece.size() / SizeOf(type_), scale_);
  }
  view_.PublishOut(++reduced_count_);
  out_seen_[me] = reduced_count_;
  return true;
}

void ChunkedScatter::CollectAwaited(std::vector<int>* members) const {
  for (int m = 0; m < view_.members(); ++m) {
    if (m == view_.me()) continue;
    const bool supplied =
        in_seen_[m] >= parts_.rounds() || view_.In(m) >= std::min(reduced_count_ + 1, parts_.rounds());
    if (!supplied || view_.Out(m) < parts_.rounds()) members->push_back(m);
  }
}

}  // namespace hvd::collective::window
