// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds out why operations wait, and reports it once for all ranks.
//
// A rank that has waited for longer than HOROVOD_STALL_CHECK_TIME_SECONDS tells the lowest rank ("stalled"). That one
// asks every rank what it is doing ("query"), collects the answers ("replies") for a short while, and logs one
// block of text (stall_report.h). Engines answer whatever their program does, so silence means something, too. If the
// lowest rank does not react by a query, the next one is told, and so on up to the waiting rank itself. Every rank
// that is asked writes the flight recorder's file: the one at fault, too.
//
// Thread safety: call with the progress token, but for active().

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/base/types.h"
#include "hvd/engine/engine_context.h"
#include "hvd/engine/scheduler.h"
#include "hvd/engine/stall/stall_report.h"
#include "hvd/wire/messages.h"

namespace hvd::engine {

class StallInspector {
 public:
  StallInspector(const EngineContext& context, const Scheduler* scheduler);

  // Looks after operations in flight, and after a report under way. Returns when to look again.
  Time Check(Time now);
  // Whether a report is under way: some thread must drive the engine for it. From any thread.
  bool active() const { return active_.load(std::memory_order_relaxed); }

  void OnStalled(Rank from, const wire::Stalled& message);
  void OnStatusQuery(Rank from, const wire::StatusQuery& query);
  void OnStatusReply(Rank from, wire::StatusReply reply);

  // Whom an operation waits for, of whom its set knows `missing`. Who knows better is asked: the sequencer, where it
  // was sent to that one; those who are missing, where their marks may lie with others. nullopt: they were asked, and
  // an answer may still come; bounded.
  std::optional<std::vector<Rank>> AskForMissing(const Operation& op, std::vector<Rank> missing, Time now);

 private:
  // The number of a query that a time-out makes; rounds count from 1.
  static constexpr uint64_t kForTimeout = 0;
  struct Round {
    uint64_t number = 0;
    Time until{};
    Time look{};  // at silent processes of this host
    std::map<Rank, wire::StatusReply> replies;
  };
  // Of a rank that was asked for the sake of a time-out.
  struct Answer {
    Time asked{};
    bool heard = false;
    wire::StatusReply reply;
  };

  Time Watch(Time now);
  Duration AgeOf(const ProcessSet::Wait& wait, Time now) const;
  // Of the operation that waits longest.
  Duration LongestWait(Time now) const;
  // Tells `rank` or, where that one is stopped or gone or left, the next.
  void Tell(Rank rank, Time now);
  void Begin(Time now);
  // Whether all have answered that can.
  bool Complete() const;
  void End(Time now);
  void Print(const StallReport& report, Time now);
  void Stop(const StallReport& report);
  // Whether this rank's program waits for an operation.
  bool IsBlocked(Time now) const;
  wire::StatusReply Describe(uint64_t number) const;
  void DumpFlight() const;
  // For the sake of an operation that timed out. Whether its answer may still come.
  bool Ask(Rank rank, const Operation& op, Time now);
  // What it has said about an operation; nullptr: nothing.
  const wire::Waiting* Heard(Rank rank, const Operation& op) const;
  // As RankObservation::process_state.
  char ProcessState(Rank rank) const;

  const EngineContext context_;
  const Scheduler* const scheduler_;
  const bool off_;
  const Duration limit_;
  Duration stop_after_{};  // zero: never

  // This rank's own wait.
  uint64_t operations_seen_ = 0;
  Time progress_{};  // when an operation was last seen to end
  Time next_look_ = Time::max();
  Time told_at_{};
  Rank told_ = -1;  // who is expected to ask

  // Reports of this rank.
  std::atomic<bool> active_{false};
  std::optional<Round> round_;
  uint64_t rounds_ = 0;
  Time ended_{};              // the last round
  Time again_ = Time::max();  // somebody stalled so shortly after it that its answer was not yet due
  Time printed_{};
  std::set<std::string> printed_keys_;  // of blocks, since what waits began to wait

  std::map<Rank, Answer> answers_;
};

}  // namespace hvd::engine
