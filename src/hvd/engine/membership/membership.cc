// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/membership/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hvd/base/log.h"
#include "hvd/base/utf8.h"
#include "hvd/mpi/session.h"
#include "hvd/wire/control.h"

namespace hvd::engine {

using transport::Cause;
using transport::PeerState;

namespace {

// A reason that begins like this is the end of a program; others are errors of its operations.
constexpr std::string_view kFailedWith = "it failed with ";

// As horovod.flight knows them.
std::string_view ShortCause(int32_t kind) {
  switch (kind) {
    case Cause::kSignal:
      return "crashed";
    case Cause::kSilent:
      return "was silent";
    case Cause::kLeft:
      return "left";
    case Cause::kStall:
      return "stalled";
    default:
      return "died";
  }
}

}  // namespace

Membership::Membership(const World* world, const Config* config, ControlChannel* control, const SetTable* sets,
                       Recorder* recorder)
    : world_(world), config_(config), control_(control), sets_(sets), recorder_(recorder) {}

Error Membership::Health() const {
  if (shut_down()) {
    return {Code::kUnknown, "Horovod has been shut down: hvd.shutdown() was called; call hvd.init() again"};
  }
  if (!revoked()) return kSuccess;
  return DescribeCause();
}

void Membership::NoticeChanges() {
  if (world_->window == nullptr) return;
  if (world_->window->revoked() && working()) {
    Revoke(world_->window->cause(), world_->window->cause_reason());
  }
  // The thread that sets it wakes this loop afterwards, so a look that comes too early is not the last one.
  if (!world_->peers_changed->load(std::memory_order_relaxed)) return;
  world_->peers_changed->exchange(false, std::memory_order_acquire);
  for (int local = 0; local < world_->layout.local_size; ++local) {
    if (world_->window->peer_state(local) != PeerState::kLeft) continue;
    const Rank rank = world_->layout.local_ranks[local];
    if (rank == world_->layout.rank || left_.contains(rank)) continue;
    // What it said before it left is still in its ring.
    while (std::ranges::count_if(world_->polled, [](transport::Pair* pair) { return pair->Poll(); }) > 0) {
    }
    const Rank blamed = world_->window->blamed(local);
    OnLeft(rank, blamed >= 0 && blamed < world_->layout.size ? blamed : rank, world_->window->reason(local));
  }
}

void Membership::OnLeft(Rank rank, Rank blamed, const std::string& reason) {
  if (!left_.insert(rank).second || !working()) return;
  if (world_->mpi != nullptr) mpi::OthersLeft();
  Rank nobody = -1;
  if (first_left_.compare_exchange_strong(nobody, blamed)) first_left_reason_ = reason;
  for (size_t i = 0; i < sets_->size(); ++i) {
    ProcessSet& set = (*sets_)[i];
    if (set.included() && set.MemberOf(rank) >= 0) set.OnLeft(set.MemberOf(rank), LeftError(blamed, reason));
  }
}

Error Membership::LeftError(Rank rank, const std::string& reason) const {
  const bool failed = reason.starts_with(kFailedWith);
  std::string text = fmt::format(
      "Horovod has been shut down: rank {} left (host {}, pid {}); {} before this operation{}", rank,
      world_->ranks[rank].hostname, world_->ranks[rank].pid,
      failed ? "its program ended" : "it called hvd.shutdown() or ended its script", failed ? ": " + reason : "");
  if (!reason.empty() && !failed) text += fmt::format(". Its last error: {}", Cut(reason, transport::kMaxReasonBytes));
  return {Code::kUnknown, std::move(text), rank};
}

void Membership::NoteFailure(std::string_view text) {
  const std::lock_guard lock(cause_mutex_);
  failure_ = Cut(text, transport::kMaxReasonBytes / 2);
}

std::string Membership::FailureReason() const {
  const std::lock_guard lock(cause_mutex_);
  return failure_.empty() ? "" : fmt::format("{}{}", kFailedWith, failure_);
}

std::string Membership::DescribeLeaving() const {
  if (std::string failure = FailureReason(); !failure.empty()) return failure;
  std::string pending;
  for (const auto& set : *sets_) {
    if (pending.empty()) pending = set->DescribeInFlight();
  }
  std::string text = "it called hvd.shutdown() or ended its script";
  if (!pending.empty()) text += fmt::format(" before {} was over", Cut(pending, transport::kMaxReasonBytes / 4));
  if (!last_error_.empty()) text += ". Its last error: " + last_error_;
  return text;
}

bool Membership::IsElsewhere(Rank rank) const {
  const std::vector<int>& host_of = world_->layout.host_of;
  return rank >= 0 && rank < world_->layout.size && host_of[rank] != host_of[world_->layout.rank];
}

void Membership::OnPairClosed(Rank rank, const Error& error) {
  if (left_.contains(rank)) return;
  // The end of a ring says nothing: whether a local rank left or died is on the window's board.
  if (control_->ByRing(rank)) return;
  Revoke({Cause::kDied, rank, 0, world_->ranks[rank].pid}, error.message);
}

void Membership::Revoke(const Cause& cause, std::string reason) {
  reason = Cut(reason, transport::kMaxReasonBytes);
  Phase expected = Phase::kWorking;
  {
    std::lock_guard lock(cause_mutex_);
    if (!working()) return;
    for (const auto& set : *sets_) {
      if (in_flight_at_end_.empty()) in_flight_at_end_ = set->DescribeInFlight();
    }
    cause_ = cause;
    reason_ = reason;
  }
  if (!phase_.compare_exchange_strong(expected, Phase::kRevoking)) return;
  revoking_since_ = world_->loop->Now();
  if (world_->window != nullptr) {
    world_->window->Revoke(cause, reason);
    // Somebody else may have been first; its cause is everybody's.
    std::lock_guard lock(cause_mutex_);
    cause_ = world_->window->cause();
    if (std::string first = world_->window->cause_reason(); !first.empty()) {
      reason_ = std::move(first);
    } else if (cause_.rank != cause.rank) {
      reason_.clear();
    }
  }
  const wire::Bytes message = wire::Encode(wire::Revoke{cause_.kind, cause_.rank, cause_.detail, cause_.pid, reason_});
  for (Rank rank = 0; rank < world_->layout.size; ++rank) {
    const bool remote =
        world_->layout.host_of[rank] != world_->layout.host_of[world_->layout.rank] || world_->window == nullptr;
    // Also to the one that is blamed: if it lives it shall know why the others are gone.
    if (remote) control_->Send(rank, message);
  }
  if (world_->window != nullptr) world_->window->SetQuiesced();
  // Only now: nobody waits for this rank any more.
  const std::string failure = cause_.rank == world_->layout.rank ? FailureReason() : "";
  recorder_->Dump(failure.empty() ? fmt::format("revoked: rank {} {}", cause_.rank, ShortCause(cause_.kind))
                                  : "failed: " + failure.substr(kFailedWith.size()));
}

bool Membership::FinishRevocation(bool pending) {
  if (phase() != Phase::kRevoking) return false;
  if (world_->window != nullptr) {
    const Duration waited = world_->loop->Now() - revoking_since_;
    bool none_stores = true;
    for (int local = 0; local < world_->layout.local_size; ++local) {
      if (local == world_->window->local() || world_->window->CannotStore(local)) continue;
      none_stores = false;
      // Alive, told to stop, and still has not said that it did: it must not write into our memory later.
      // One that is still in init cannot answer before it is through.
      const double patience =
          world_->window->beat(local) == 0 ? config_->start_timeout_s : std::max(config_->heartbeat_timeout_s, 0.5);
      const bool late = waited > Seconds(patience);
      if (late && killed_.insert(world_->layout.local_ranks[local]).second) world_->window->Kill(local);
    }
    if (!none_stores) return false;
  }
  phase_.store(Phase::kRevoked, std::memory_order_release);
  const Error error = DescribeCause();
  if (pending) log::Info("{}", error.message);
  control_->CloseAll();
  for (const auto& set : *sets_) set->FailAll(error);
  return true;
}

Error Membership::DescribeCause() const {
  std::lock_guard lock(cause_mutex_);
  const Rank rank = cause_.rank;
  std::string who = "a rank";
  if (rank >= 0 && rank < world_->layout.size) {
    who = fmt::format("rank {} (host {}, pid {})", rank, world_->ranks[rank].hostname, world_->ranks[rank].pid);
  }
  std::string what;
  switch (cause_.kind) {
    case Cause::kSignal:
      what = fmt::format("{} was ended by signal {} ({})", who, cause_.detail, strsignal(cause_.detail));
      break;
    case Cause::kSilent:
      what = fmt::format("{} did not respond for {:g} s (stopped, or stuck in the kernel{})", who,
                         cause_.detail > 0 ? cause_.detail : config_->heartbeat_timeout_s,
                         IsElsewhere(rank) ? ", or its machine or the network is gone" : "");
      break;
    case Cause::kLeft:
      what =
          fmt::format("{} left {}", who, cause_.detail > 0 ? "before the others were done" : "with operations pending");
      break;
    case Cause::kStall:
      what = cause_.detail != 0 ? "ranks wait for different operations"
                                : fmt::format("{} did not submit what the others wait for", who);
      break;
    default:
      what = rank == world_->layout.rank ? fmt::format("{} (this rank) was declared lost by its peers", who)
                                         : fmt::format("{} died", who);
  }
  if (!reason_.empty()) what += ": " + reason_;
  const std::string during = in_flight_at_end_.empty() ? std::string() : " during " + in_flight_at_end_;
  return {Code::kUnknown,
          fmt::format("Horovod has been shut down: {}{} [generation {}]", what, during, world_->generation), rank};
}

void Membership::GiveUp(const Error& error) {
  log::Error("rank {} gives up: {}", world_->layout.rank, error.message);
  if (error.rank < 0 || error.rank >= world_->layout.size) {
    return Revoke({Cause::kLeft, world_->layout.rank, 0, PidOf(world_->layout.rank)}, error.message);
  }
  // A transfer that failed names the peer.
  const int local = world_->window == nullptr ? -1 : world_->layout.LocalOf(error.rank);
  const bool left = left_.contains(error.rank) || (local >= 0 && world_->window->peer_state(local) == PeerState::kLeft);
  if (!left) return Revoke({Cause::kDied, error.rank, 0, PidOf(error.rank)}, error.message);
  const Rank first = first_left_.load(std::memory_order_relaxed);
  const Rank blamed = first >= 0 ? first : error.rank;
  Revoke({Cause::kLeft, blamed, 1, PidOf(blamed)}, first >= 0 ? first_left_reason_ : error.message);
}

void Membership::DeclareLost(Rank rank, int32_t detail) {
  Revoke({Cause::kSilent, rank, detail, world_->ranks[rank].pid}, {});
  const int local = world_->layout.LocalOf(rank);
  if (world_->window != nullptr && local >= 0) world_->window->Kill(local);
}

void Membership::OnFenced() {
  const bool known = world_->window->revoked();
  Revoke(known ? world_->window->cause() : Cause{Cause::kSilent, world_->layout.rank, 0, 0}, {});
}

void Membership::NoteOutcome(const Error& error) {
  if (error.code != Code::kOk || !last_error_.empty()) last_error_ = error.message;
  // The sequencer may know before this rank does that one left.
  if (error.code == Code::kUnknown && error.rank >= 0) {
    Rank nobody = -1;
    first_left_.compare_exchange_strong(nobody, error.rank);
  }
}

bool Membership::BeginShutdown() {
  if (shut_down_.exchange(true)) return false;
  // A generation that was revoked has left its dump already, with the cause.
  if (working()) {
    const std::string failure = FailureReason();
    recorder_->Dump(failure.empty() ? "shutdown" : "failed: " + failure.substr(kFailedWith.size()));
  }
  return true;
}

void Membership::BeginLeaving(bool pending) {
  // A rank that leaves because another one left is not to blame.
  const Rank first_left = first_left_.load(std::memory_order_relaxed);
  farewell_.follows = first_left >= 0;
  farewell_.blamed = farewell_.follows ? first_left : world_->layout.rank;
  if (!pending || !working()) return;
  Revoke({Cause::kLeft, farewell_.blamed, farewell_.follows, PidOf(farewell_.blamed)},
         farewell_.follows ? first_left_reason_ : DescribeLeaving());
}

void Membership::SendGoodbyes() {
  farewell_.text = FailureReason();
  if (farewell_.follows || farewell_.text.empty()) {
    farewell_.text = Cut(farewell_.follows ? first_left_reason_ : last_error_, transport::kMaxReasonBytes);
  }
  const wire::Bytes goodbye = wire::Encode(wire::Goodbye{farewell_.blamed, true, farewell_.text});
  for (Rank rank = 0; rank < world_->layout.size; ++rank) {
    if (world_->pairs.empty() || world_->pairs[rank] == nullptr || control_->ByRing(rank)) continue;
    control_->Send(rank, goodbye);
  }
}

void Membership::LeaveWindow() {
  if (world_->window == nullptr) return;
  world_->window->Blame(farewell_.blamed, farewell_.text);
  world_->window->SayGoodbye();
}

}  // namespace hvd::engine
