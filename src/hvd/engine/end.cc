// SPDX-License-Identifier: Apache-2.0
// How a generation ends: a peer dies or leaves, is silent, or this rank gives up. Revoke -> quiesce -> wait until no
// peer can store into our memory -> fail everything in flight with the first cause.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "hvd/base/log.h"
#include "hvd/base/text.h"
#include "hvd/engine/engine.h"
#include "hvd/mpi/session.h"
#include "hvd/tune/tuner.h"

namespace hvd::engine {

using transport::Cause;
using transport::PeerState;

namespace {

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

Error Engine::Health() const {
  if (shut_down_.load(std::memory_order_relaxed)) {
    return {Code::kUnknown, "Horovod has been shut down: hvd.shutdown() was called; call hvd.init() again"};
  }
  if (phase_.load(std::memory_order_acquire) == Phase::kWorking) return {Code::kOk, {}, -1};
  return DescribeCause();
}

void Engine::NoticeChanges() {
  if (world_.window == nullptr) return;
  if (world_.window->revoked() && phase_.load(std::memory_order_relaxed) == Phase::kWorking) {
    Revoke(world_.window->cause(), world_.window->cause_reason());
  }
  // Whoever sets it wakes this loop afterwards, so a look that comes too early is not the last one.
  if (!world_.peers_changed->load(std::memory_order_relaxed)) return;
  world_.peers_changed->exchange(false, std::memory_order_acquire);
  for (int local = 0; local < world_.layout.local_size; ++local) {
    if (world_.window->peer_state(local) != PeerState::kLeft) continue;
    const Rank rank = world_.layout.local_ranks[local];
    if (rank == world_.layout.rank || left_.contains(rank)) continue;
    // What it said before it left is still in its ring.
    while (std::ranges::count_if(world_.polled, [](transport::Pair* pair) { return pair->Poll(); }) > 0) {
    }
    const Rank blamed = world_.window->blamed(local);
    MarkLeft(rank, blamed >= 0 && blamed < world_.layout.size ? blamed : rank, world_.window->reason(local));
  }
}

void Engine::MarkLeft(Rank rank, Rank blamed, const std::string& reason) {
  if (!left_.insert(rank).second || phase_.load(std::memory_order_relaxed) != Phase::kWorking) return;
  if (uses_mpi()) mpi::OthersLeft();
  Rank nobody = -1;
  if (first_left_.compare_exchange_strong(nobody, blamed)) first_left_reason_ = reason;
  for (size_t i = 0; i < sets_.size(); ++i) {
    ProcessSet& set = sets_[i];
    if (set.included() && set.MemberOf(rank) >= 0) set.OnLeft(set.MemberOf(rank), LeftError(blamed, reason));
  }
}

Error Engine::LeftError(Rank rank, const std::string& reason) const {
  std::string text = fmt::format(
      "Horovod has been shut down: rank {} left (host {}, pid {}); it called hvd.shutdown() or ended its script before "
      "this operation",
      rank, world_.ranks[rank].hostname, world_.ranks[rank].pid);
  if (!reason.empty()) text += fmt::format(". Its last error: {}", Cut(reason, transport::kMaxReasonBytes));
  return {Code::kUnknown, std::move(text), rank};
}

std::string Engine::DescribeLeaving() const {
  std::string pending;
  for (const auto& set : sets_) {
    if (pending.empty()) pending = set->DescribeInFlight();
  }
  std::string text = "it called hvd.shutdown() or ended its script";
  if (!pending.empty()) text += fmt::format(" before {} was over", Cut(pending, transport::kMaxReasonBytes / 4));
  if (!last_error_.empty()) text += ". Its last error: " + last_error_;
  return text;
}

bool Engine::ReachedByRing(Rank rank) const {
  return std::ranges::find(world_.polled, world_.pairs[rank].get()) != world_.polled.end();
}

void Engine::OnPairClosed(Rank rank, const Error& error) {
  if (left_.contains(rank) || stopping_.load(std::memory_order_relaxed)) return;
  // The end of a ring says nothing: whether a local rank left or died is on the window's board.
  if (ReachedByRing(rank)) return;
  Revoke({Cause::kDied, rank, 0, world_.ranks[rank].pid}, error.message);
}

void Engine::Revoke(const Cause& cause, std::string reason) {
  reason = Cut(reason, transport::kMaxReasonBytes);
  Phase working = Phase::kWorking;
  {
    std::lock_guard lock(cause_mutex_);
    if (phase_.load(std::memory_order_relaxed) != Phase::kWorking) return;
    for (const auto& set : sets_) {
      if (in_flight_at_end_.empty()) in_flight_at_end_ = set->DescribeInFlight();
    }
    cause_ = cause;
    reason_ = reason;
  }
  if (!phase_.compare_exchange_strong(working, Phase::kRevoking)) return;
  revoking_since_ = world_.loop->Now();
  if (world_.window != nullptr) {
    world_.window->Revoke(cause, reason);
    // Somebody else may have been first; its cause is everybody's.
    std::lock_guard lock(cause_mutex_);
    cause_ = world_.window->cause();
    if (std::string first = world_.window->cause_reason(); !first.empty()) {
      reason_ = std::move(first);
    } else if (cause_.rank != cause.rank) {
      reason_.clear();
    }
  }
  recorder_.Dump(fmt::format("revoked: rank {} {}", cause_.rank, ShortCause(cause_.kind)));
  const wire::Bytes message = wire::Encode(wire::Revoke{cause_.kind, cause_.rank, cause_.detail, cause_.pid, reason_});
  for (Rank rank = 0; rank < world_.layout.size; ++rank) {
    const bool remote =
        world_.layout.host_of[rank] != world_.layout.host_of[world_.layout.rank] || world_.window == nullptr;
    // Also to the one that is blamed: if it lives it shall know why the others are gone.
    if (remote) SendControl(rank, message);
  }
  if (world_.window != nullptr) world_.window->SetQuiesced();
}

bool Engine::FinishRevocation() {
  if (phase_.load(std::memory_order_relaxed) != Phase::kRevoking) return false;
  if (world_.window != nullptr) {
    const Duration waited = world_.loop->Now() - revoking_since_;
    bool harmless = true;
    for (int local = 0; local < world_.layout.local_size; ++local) {
      if (local == world_.window->local() || world_.window->Harmless(local)) continue;
      harmless = false;
      // Alive, told to stop, and still has not said that it did: it must not write into our memory later.
      // One that is still in init cannot answer before it is through.
      const double patience = world_.window->beat(local) == 0 ? options_.config.start_timeout_s
                                                              : std::max(options_.config.heartbeat_timeout_s, 0.5);
      const bool late = waited > Seconds(patience);
      if (late && killed_.insert(world_.layout.local_ranks[local]).second) world_.window->Kill(local);
    }
    if (!harmless) return false;
  }
  phase_.store(Phase::kRevoked, std::memory_order_release);
  const Error error = DescribeCause();
  if (pending_.load(std::memory_order_relaxed) > 0) log::Info("{}", error.message);
  // Ends transfers in flight: what they read or wrote is the callers' again in a moment.
  for (auto& pair : world_.pairs) {
    if (pair != nullptr) pair->Close();
  }
  for (const auto& set : sets_) set->FailAll(error);
  return true;
}

Error Engine::DescribeCause() const {
  std::lock_guard lock(cause_mutex_);
  const Rank rank = cause_.rank;
  std::string who = "a rank";
  if (rank >= 0 && rank < world_.layout.size) {
    who = fmt::format("rank {} (host {}, pid {})", rank, world_.ranks[rank].hostname, world_.ranks[rank].pid);
  }
  std::string what;
  switch (cause_.kind) {
    case Cause::kSignal:
      what = fmt::format("{} was ended by signal {} ({})", who, cause_.detail, strsignal(cause_.detail));
      break;
    case Cause::kSilent:
      what = fmt::format("{} did not respond for {:g} s (stopped, or stuck in the kernel)", who,
                         cause_.detail > 0 ? cause_.detail : options_.config.heartbeat_timeout_s);
      break;
    case Cause::kLeft:
      what =
          fmt::format("{} left {}", who, cause_.detail > 0 ? "before the others were done" : "with operations pending");
      break;
    case Cause::kStall:
      what = fmt::format("{} did not submit what the others wait for", who);
      break;
    default:
      what = rank == world_.layout.rank ? fmt::format("{}, this one, was given up by the others", who)
                                        : fmt::format("{} died", who);
  }
  if (!reason_.empty()) what += ": " + reason_;
  const std::string during = in_flight_at_end_.empty() ? std::string() : " during " + in_flight_at_end_;
  return {Code::kUnknown,
          fmt::format("Horovod has been shut down: {}{} [generation {}]", what, during, world_.generation), rank};
}

void Engine::GiveUp(Error error) {
  log::Error("rank {} gives up: {}", world_.layout.rank, error.message);
  if (error.rank < 0 || error.rank >= world_.layout.size) {
    return Revoke({Cause::kLeft, world_.layout.rank, 0, PidOf(world_.layout.rank)}, error.message);
  }
  // A transfer that failed names the peer.
  const int local = world_.window == nullptr ? -1 : world_.layout.LocalOf(error.rank);
  const bool left = left_.contains(error.rank) || (local >= 0 && world_.window->peer_state(local) == PeerState::kLeft);
  if (!left) return Revoke({Cause::kDied, error.rank, 0, PidOf(error.rank)}, error.message);
  const Rank first = first_left_.load(std::memory_order_relaxed);
  const Rank blamed = first >= 0 ? first : error.rank;
  Revoke({Cause::kLeft, blamed, 1, PidOf(blamed)}, first >= 0 ? first_left_reason_ : error.message);
}

void Engine::Shutdown() {
  if (shut_down_.exchange(true)) return;
  // A generation that was revoked has left its dump already, with the cause.
  if (phase_.load(std::memory_order_relaxed) == Phase::kWorking) recorder_.Dump("shutdown");
  // In the middle of other callers' waits: they see it through their operations' errors.
  callers_waiting_.fetch_add(1, std::memory_order_seq_cst);
  world_.loop->Wake();
  bool token = false;
  {
    std::unique_lock lock(wait_mutex_);
    stopping_.store(true, std::memory_order_release);
    wait_changed_.notify_all();
  }
  world_.loop->Wake();
  while (thread_.joinable() && !thread_done_.load(std::memory_order_acquire)) {
    world_.loop->Wake();  // again and again: another thread may have taken the last one
    usleep(200);
  }
  if (thread_.joinable()) thread_.join();
  const Time limit = world_.loop->Now() + Seconds(2);
  while (!(token = TryToken()) && world_.loop->Now() < limit) {
    world_.loop->Wake();
    usleep(1000);
  }
  callers_waiting_.fetch_sub(1, std::memory_order_relaxed);
  if (token) {
    DrainInbox();
    const Error error{Code::kUnknown, "Horovod has been shut down: hvd.shutdown() was called on this rank"};
    // Who leaves because another one left is not to blame.
    const Rank first_left = first_left_.load(std::memory_order_relaxed);
    const Rank blamed = first_left >= 0 ? first_left : world_.layout.rank;
    if (pending_.load(std::memory_order_relaxed) > 0 && phase_ == Phase::kWorking) {
      Revoke({Cause::kLeft, blamed, blamed == first_left, PidOf(blamed)},
             blamed == first_left ? first_left_reason_ : DescribeLeaving());
    }
    while (phase_ == Phase::kRevoking && world_.loop->Now() < limit + Seconds(options_.config.heartbeat_timeout_s)) {
      Progress();
      sched_yield();
    }
    const std::string reason(Cut(first_left >= 0 ? first_left_reason_ : last_error_, transport::kMaxReasonBytes));
    for (const auto& set : sets_) set->TellReached();
    const wire::Bytes goodbye = wire::Encode(wire::Goodbye{blamed, true, reason});
    for (Rank rank = 0; rank < world_.layout.size; ++rank) {
      if (world_.pairs.empty() || world_.pairs[rank] == nullptr) continue;
      if (ReachedByRing(rank)) continue;
      SendControl(rank, goodbye);
    }
    for (auto& pair : world_.pairs) {
      if (pair != nullptr) pair->Close();
    }
    for (const auto& set : sets_) set->FailAll(error);
    DrainInbox();
    // Closed connections drain while somebody turns the loop, and rings while somebody polls them; without that what
    // peers still need would be dropped.
    const Time drained = world_.loop->Now() + Seconds(2);
    for (bool rings = true; rings || world_.loop->watched() > 0;) {
      rings = false;
      for (transport::Pair* pair : world_.polled) {
        pair->Poll();
        const int local = world_.layout.LocalOf(pair->peer());
        rings |= pair->IsSayingMore() && world_.window->peer_state(local) == PeerState::kAlive;
      }
      if (world_.loop->Now() >= drained) break;
      if (rings || world_.loop->watched() > 0) world_.loop->Turn(std::chrono::milliseconds(rings ? 1 : 10));
    }
    if (world_.window != nullptr) {
      world_.window->Blame(blamed, reason);
      world_.window->SayGoodbye();
    }
    GiveToken();
  }
}

Engine::~Engine() {
  Shutdown();
  completer_.Stop();  // its jobs use what is below it in the class
}

}  // namespace hvd::engine
