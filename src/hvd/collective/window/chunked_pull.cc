// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/chunked_pull.h"

#include <algorithm>

#include "hvd/collective/pattern/slices.h"

namespace hvd::collective::window {

ChunkedPull::ChunkedPull(PositionView view, std::vector<Source> sources, const Payload* payload)
    : view_(view),
      sources_(std::move(sources)),
      payload_(payload),
      in_seen_(view.members()),
      out_seen_(view.members()) {
  for (const Source& source : sources_) {
    rounds_ = std::max(rounds_, ChunksOf(source));
    if (source.member == view_.me()) {
      my_bytes_ = source.bytes;
      my_chunks_ = ChunksOf(source);
    }
    if (view_.place(source.member).location != DataLocation::kStaged) in_seen_[source.member] = ChunksOf(source);
  }
  if (view_.place(view_.me()).location != DataLocation::kStaged) staged_count_ = my_chunks_;
  view_.most_chunks = rounds_;
}

size_t ChunkedPull::ChunksOf(const Source& source) const {
  return pattern::ChunkCount(source.bytes, view_.staging.chunk_bytes);
}

Progress ChunkedPull::Step() {
  const bool staged = StageChunk();
  const bool pulled = PullRound();
  // A source may go only when everybody has read it: then nobody looks at its memory any more.
  if (pulled_count_ == rounds_ && (my_chunks_ == 0 || view_.AllOut(&out_seen_, my_chunks_))) return Progress::kDone;
  return staged || pulled ? Progress::kMoved : Progress::kWaiting;
}

bool ChunkedPull::StageChunk() {
  if (staged_count_ == my_chunks_) return false;
  const size_t depth = view_.staging.depth;
  if (staged_count_ >= depth && !view_.AllOut(&out_seen_, staged_count_ - depth + 1)) return false;
  const auto range = pattern::Chunk(my_bytes_, view_.staging.chunk_bytes, staged_count_);
  payload_->Gather(range.begin, range.size(), view_.Source(view_.me(), staged_count_));
  view_.PublishIn(++staged_count_);
  in_seen_[view_.me()] = staged_count_;
  return true;
}

bool ChunkedPull::PullRound() {
  if (pulled_count_ == rounds_) return false;
  for (const Source& source : sources_) {
    if (ChunksOf(source) <= pulled_count_ || in_seen_[source.member] > pulled_count_) continue;
    in_seen_[source.member] = view_.In(source.member);
    if (in_seen_[source.member] <= pulled_count_) return false;
  }
  for (const Source& source : sources_) {
    if (ChunksOf(source) <= pulled_count_ || source.to == nullptr) continue;
    const auto chunk = pattern::Chunk(source.bytes, view_.staging.chunk_bytes, pulled_count_);
    const auto part = pattern::Common(chunk, source.wanted);
    if (part.size() == 0) continue;
    kernel::Copy(source.to + (part.begin - source.wanted.begin),
                 view_.Source(source.member, pulled_count_) + (part.begin - chunk.begin), part.size());
  }
  view_.PublishOut(++pulled_count_);
  out_seen_[view_.me()] = pulled_count_;
  return true;
}

void ChunkedPull::CollectAwaited(std::vector<int>* members) const {
  for (const Source& source : sources_) {
    const size_t wanted = std::min(pulled_count_ + 1, ChunksOf(source));
    if (source.member != view_.me() && in_seen_[source.member] < wanted && view_.In(source.member) < wanted) {
      members->push_back(source.member);
    }
  }
  for (int m = 0; m < view_.members(); ++m) {
    if (m != view_.me() && view_.Out(m) < my_chunks_) members->push_back(m);
  }
}

}  // namespace hvd::collective::window
