// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/chunked_reduce.h"

#include "hvd/collective/pattern/slices.h"
#include "hvd/collective/window/per_member.h"

namespace hvd::collective::window {

namespace {

// What a member reduces at a time: elements [begin, end) of chunk `chunk` as PositionView::Source knows it.
struct Portion {
  size_t chunk;
  pattern::Range elements;
};

Portion PortionOf(const PositionView& view, size_t bytes, size_t element, size_t chunk) {
  const size_t chunk_bytes = view.staging.chunk_bytes;
  if (!IsDirect(view)) {
    const auto range = pattern::Chunk(bytes, chunk_bytes, chunk);
    return {chunk, pattern::Slice(range.size() / element, element, view.members(), view.me())};
  }
  const auto mine = pattern::Slice(bytes / element, element, view.members(), view.me());
  const int chunks = static_cast<int>(pattern::ChunkCount(bytes, chunk_bytes));
  const auto part = pattern::Slice(mine.size(), element, chunks, static_cast<int>(chunk));
  return {0, {mine.begin + part.begin, mine.begin + part.end}};
}

}  // namespace

void ReduceSlice(const PositionView& view, ReduceOp op, DType type, kernel::Scale scale, size_t bytes, size_t chunk,
                 kernel::Stores stores) {
  const size_t element = SizeOf(type);
  const Portion portion = PortionOf(view, bytes, element, chunk);
  PerMember<const void*> sources(view.members());
  PerMember<void*> targets(view.members());
  for (int m = 0; m < view.members(); ++m) {
    sources[m] = view.Source(m, portion.chunk) + portion.elements.begin * element;
    targets[m] = view.Target(m, portion.chunk) + portion.elements.begin * element;
  }
  kernel::Reduce(op, type, sources.all(), targets.all(), portion.elements.size(), scale, stores);
}

ChunkedReduce::ChunkedReduce(PositionView view, ReduceOp op, DType type, kernel::Scale scale, const Payload* payload,
                             size_t reduced, kernel::Stores stores)
    : view_(view),
      op_(op),
      type_(type),
      scale_(scale),
      stores_(stores),
      payload_(payload),
      chunks_(pattern::ChunkCount(payload->bytes(), view.staging.chunk_bytes)),
      location_(view.place(view.me()).location),
      reduced_count_(reduced),
      in_seen_(view.members()),
      out_seen_(view.members()) {
  view_.most_chunks = chunks_;
  // Data that is not copied in is readable as soon as its mark is.
  for (int m = 0; m < view_.members(); ++m) {
    if (!IsCopiedIn(view_.place(m).location)) in_seen_[m] = chunks_;
  }
  const int me = view_.me();
  staged_count_ = IsCopiedIn(location_) ? view_.In(me) : chunks_;
  in_seen_[me] = staged_count_;
  out_seen_[me] = reduced;
}

Progress ChunkedReduce::Step() {
  // Finishing first frees ring chunks; staging before reducing keeps peers supplied.
  const bool finished = FinishChunk();
  const bool staged = StageChunk();
  const bool reduced = ReduceChunk();
  if (finished_count_ == chunks_) return Progress::kDone;
  return finished || staged || reduced ? Progress::kMoved : Progress::kWaiting;
}

bool ChunkedReduce::StageChunk() {
  if (staged_count_ == chunks_) return false;
  // A ring chunk is free again when its last result was copied out, which is after every peer finished with it.
  if (location_ == DataLocation::kStaged && staged_count_ >= finished_count_ + view_.staging.depth) return false;
  const auto range = pattern::Chunk(payload_->bytes(), view_.staging.chunk_bytes, staged_count_);
  payload_->Gather(range.begin, range.size(), view_.Source(view_.me(), staged_count_));
  view_.PublishIn(++staged_count_);
  in_seen_[view_.me()] = staged_count_;
  return true;
}

bool ChunkedReduce::ReduceChunk() {
  if (reduced_count_ == chunks_ || !view_.AllIn(&in_seen_, reduced_count_ + 1)) return false;
  ReduceSlice(view_, op_, type_, scale_, payload_->bytes(), reduced_count_, stores_);
  view_.PublishOut(++reduced_count_);
  out_seen_[view_.me()] = reduced_count_;
  return true;
}

bool ChunkedReduce::FinishChunk() {
  if (finished_count_ == reduced_count_ || !view_.AllOut(&out_seen_, finished_count_ + 1)) return false;
  if (!IsStoredOut(location_)) {
    const auto range = pattern::Chunk(payload_->bytes(), view_.staging.chunk_bytes, finished_count_);
    payload_->Scatter(range.begin, range.size(), view_.Target(view_.me(), finished_count_));
  }
  ++finished_count_;
  return true;
}

void ChunkedReduce::CollectAwaited(std::vector<int>* members) const {
  for (int m = 0; m < view_.members(); ++m) {
    if (m == view_.me()) continue;
    const bool supplied = in_seen_[m] >= chunks_ || view_.In(m) >= std::min(reduced_count_ + 1, chunks_);
    if (!supplied || view_.Out(m) < std::min(finished_count_ + 1, chunks_)) members->push_back(m);
  }
}

}  // namespace hvd::collective::window
