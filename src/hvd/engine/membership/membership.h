// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who is in this generation, and whether it can still succeed: which ranks have left, the first cause for which the
// generation ended, and the steps of its end.
//
// working    Operations can succeed.
// revoking   The first cause is known. This rank stores into no peer's memory any more, and waits until no peer can
//            store into this rank's memory.
// revoked    Everything in flight has failed with the first cause. A phase is never left backwards.
//
// A rank that leaves in good order revokes nothing: operations that lack it fail, others go on.
//
// Thread safety: phase, working, revoked, shut_down, Health, DescribeCause, NoteFailure and BeginShutdown from any
// thread; the rest with the progress token.
// Lifetime: what the constructor is given outlives it.

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "hvd/base/config.h"
#include "hvd/base/result.h"
#include "hvd/engine/bootstrap/world.h"
#include "hvd/engine/control_channel.h"
#include "hvd/engine/process_set/set_table.h"
#include "hvd/engine/recorder.h"
#include "hvd/transport/window.h"

namespace hvd::engine {

class Membership {
 public:
  enum class Phase { kWorking, kRevoking, kRevoked };

  Membership(const World* world, const Config* config, ControlChannel* control, const SetTable* sets,
             Recorder* recorder);

  // For decisions that are made again soon.
  Phase phase() const { return phase_.load(std::memory_order_relaxed); }
  bool working() const { return phase() == Phase::kWorking; }
  // Whether a peer was lost, so that nothing can succeed any more.
  bool revoked() const { return phase_.load(std::memory_order_acquire) != Phase::kWorking; }
  bool shut_down() const { return shut_down_.load(std::memory_order_relaxed); }
  // kOk while operations can succeed; else the first cause, with the rank that is to blame.
  Error Health() const;
  // The first cause. Call it once the generation is revoked.
  Error DescribeCause() const;
  // Why this rank will leave, if its program failed.
  void NoteFailure(std::string_view text);

  bool has_left(Rank rank) const { return left_.contains(rank); }

  // Learns from the window's board which local ranks left and whether the generation was revoked there.
  void NoticeChanges();
  // `blamed`: the rank for whose sake it left; itself if nobody's. `reason`: what that rank had to say.
  void OnLeft(Rank rank, Rank blamed, const std::string& reason);
  void OnPairClosed(Rank rank, const Error& error);
  // `reason`: what is known beyond the cause; goes to all peers, cut to a bounded length. Only the first call counts.
  void Revoke(const transport::Cause& cause, std::string reason);
  // The rank did not answer for too long. `detail` as in transport::Cause.
  void DeclareLost(Rank rank, int32_t detail);
  // This rank's peers took its right to store.
  void OnFenced();
  // This rank cannot go on. A rank in the error is to blame.
  void GiveUp(const Error& error);
  // Goes from revoking to revoked once no peer can store any more. True if it did. `pending`: operations are in flight.
  bool FinishRevocation(bool pending);

  // How an operation of this rank ended.
  void NoteOutcome(const Error& error);
  void NoteSuccess() {
    if (!last_error_.empty()) last_error_.clear();
  }

  // The steps of a shutdown. False: another thread has begun it.
  bool BeginShutdown();
  // Revokes the generation if operations are pending.
  void BeginLeaving(bool pending);
  // Tells ranks that are reached through a network.
  void SendGoodbyes();
  // Tells the ranks of this host. Nothing of this rank is needed by them after that.
  void LeaveWindow();

 private:
  // What this rank's leaving does to what is in flight, and the last error of an operation, in words.
  std::string DescribeLeaving() const;
  // What NoteFailure was told, as a sentence about this rank; empty if nothing.
  std::string FailureReason() const;
  Error LeftError(Rank rank, const std::string& reason) const;
  bool IsElsewhere(Rank rank) const;
  int32_t PidOf(Rank rank) const { return world_->ranks.empty() ? 0 : world_->ranks[rank].pid; }

  const World* const world_;
  const Config* const config_;
  ControlChannel* const control_;
  const SetTable* const sets_;
  Recorder* const recorder_;

  std::atomic<Phase> phase_{Phase::kWorking};
  std::atomic<bool> shut_down_{false};
  Time revoking_since_{};
  mutable std::mutex cause_mutex_;  // guards the next four
  transport::Cause cause_;
  std::string reason_;            // of the cause
  std::string in_flight_at_end_;  // an operation that was in flight then
  std::string failure_;           // why this rank leaves, if its program failed
  std::set<Rank> left_;
  std::set<Rank> killed_;
  std::atomic<Rank> first_left_{-1};
  std::string first_left_reason_;
  std::string last_error_;  // of this rank's last operation; empty if that went well
  // At a shutdown: what this rank tells the others.
  struct Farewell {
    Rank blamed = -1;      // the rank for whose sake this one leaves
    bool follows = false;  // another rank left first
    std::string text;
  } farewell_;
};

}  // namespace hvd::engine
