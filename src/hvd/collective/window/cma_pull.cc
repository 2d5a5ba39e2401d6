// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/cma_pull.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hvd::collective::window {
namespace {

// Of one step.
constexpr size_t kMostAtOnce = 1 << 20;

}  // namespace

CmaPull::CmaPull(PositionView view, std::vector<ChunkedPull::Source> sources, const std::byte* own)
    : view_(view), sources_(std::move(sources)), own_(own), out_seen_(view.members()) {
  view_.most_chunks = 1;
  // Everybody begins with the one after itself, so that not all read from one at a time.
  const auto after_me = std::ranges::find_if(sources_, [&](const auto& source) { return source.member > view_.me(); });
  std::rotate(sources_.begin(), after_me, sources_.end());
  for (const ChunkedPull::Source& source : sources_) brings_ |= source.member == view_.me() && source.bytes > 0;
}

int CmaPull::Fetch(int member, size_t begin, size_t bytes, std::byte* to) {
  const Place& place = view_.place(member);
  if (member != view_.me() && place.location == DataLocation::kStaged) {
    return view_.window->ReadPeer(view_.locals[member], place.address + begin, to, bytes);
  }
  const std::byte* const from = member == view_.me() ? own_ : place.source;
  kernel::Copy(to, from + begin, bytes);
  return 0;
}

void CmaPull::FetchPiece() {
  const ChunkedPull::Source& source = sources_[source_];
  const size_t wanted = source.to == nullptr ? 0 : source.wanted.size();
  const size_t bytes = std::min(wanted - fetched_, kMostAtOnce);
  if (bytes > 0) error_ = Fetch(source.member, source.wanted.begin + fetched_, bytes, source.to + fetched_);
  if (error_ != 0) return;
  fetched_ += bytes;
  if (fetched_ < wanted) return;
  fetched_ = 0;
  ++source_;
}

Progress CmaPull::Step() {
  const bool fetches = source_ < sources_.size();
  if (fetches) FetchPiece();
  // The end of a rank ends the generation, which ends this machine.
  if (error_ != 0) return error_ == ESRCH ? Progress::kWaiting : Progress::kFailed;
  if (source_ < sources_.size()) return Progress::kMoved;
  if (!published_) {
    published_ = true;
    view_.PublishOut(1);
  }
  // A source may go only when everybody has read it.
  if (!brings_ || view_.AllOut(&out_seen_, 1)) return Progress::kDone;
  return fetches ? Progress::kMoved : Progress::kWaiting;
}

Error CmaPull::error() const {
  return {Code::kInternal,
          fmt::format("the memory of the rank with pid {} cannot be read (process_vm_readv: {}); "
                      "HOROVOD_ALGORITHMS=any:shm:cma=none does without that",
                      view_.window->pid(view_.locals[sources_[source_].member]), std::strerror(error_))};
}

void CmaPull::CollectAwaited(std::vector<int>* members) const {
  if (error_ != 0) members->push_back(sources_[source_].member);
  for (int m = 0; brings_ && m < view_.members(); ++m) {
    if (m != view_.me() && view_.Out(m) < 1) members->push_back(m);
  }
}

}  // namespace hvd::collective::window
