// SPDX-License-Identifier: Apache-2.0
#include "hvd/collective/window/fetched_pull.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hvd::collective::window {
namespace {

// Of one step.
constexpr size_t kMostAtOnce = 1 << 20;

}  // namespace

FetchedPull::FetchedPull(Meeting meeting, std::vector<ChunkedPull::Source> sources, const std::byte* own)
    : meeting_(meeting), sources_(std::move(sources)), own_(own), out_seen_(meeting.members()) {
  // Everybody begins with the one after itself, so that not all read from one at a time.
  const auto after_me =
      std::ranges::find_if(sources_, [&](const auto& source) { return source.member > meeting_.me(); });
  std::rotate(sources_.begin(), after_me, sources_.end());
  for (const ChunkedPull::Source& source : sources_) brings_ |= source.member == meeting_.me() && source.bytes > 0;
}

int FetchedPull::Fetch(int member, size_t begin, size_t bytes, std::byte* to) {
  const Header& header = meeting_.header(member);
  const int local = meeting_.locals[member];
  if (member != meeting_.me() && header.place == Place::kStaged) {
    return meeting_.window->ReadPeer(local, header.address + begin, to, bytes);
  }
  const std::byte* const from = member == meeting_.me() ? own_ : meeting_.window->PeerArena(local, header.in_offset);
  kernel::Copy(to, from + begin, bytes);
  return 0;
}

void FetchedPull::FetchPiece() {
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

Progress FetchedPull::Step() {
  const bool fetches = source_ < sources_.size();
  if (fetches) FetchPiece();
  // The end of a rank ends the generation, which ends this machine.
  if (error_ != 0) return error_ == ESRCH ? Progress::kWaiting : Progress::kFailed;
  if (source_ < sources_.size()) return Progress::kMoved;
  if (!published_) {
    published_ = true;
    meeting_.PublishOut(1);
  }
  // A source may go only when everybody has read it.
  if (!brings_ || meeting_.AllOut(&out_seen_, 1)) return Progress::kDone;
  return fetches ? Progress::kMoved : Progress::kWaiting;
}

Error FetchedPull::error() const {
  return {Code::kInternal,
          fmt::format("the memory of the rank with pid {} cannot be read (process_vm_readv: {}); "
                      "HOROVOD_ALGORITHMS=any:host:fetched=none does without that",
                      meeting_.window->pid(meeting_.locals[sources_[source_].member]), std::strerror(error_))};
}

void FetchedPull::CollectAwaited(std::vector<int>* members) const {
  if (error_ != 0) members->push_back(sources_[source_].member);
  for (int m = 0; brings_ && m < meeting_.members(); ++m) {
    if (m != meeting_.me() && meeting_.Out(m) < 1) members->push_back(m);
  }
}

}  // namespace hvd::collective::window
