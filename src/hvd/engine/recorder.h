// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tells the counters, the flight recorder and the timeline what happens to this rank's operations.
//
// Thread safety: Queued, Read, Dump, StartTimeline and StopTimeline from any thread; the rest with the progress token.

#include <atomic>
#include <optional>
#include <string>

#include "hvd/base/config.h"
#include "hvd/engine/bootstrap/world.h"
#include "hvd/engine/dump_writer.h"
#include "hvd/engine/operation.h"
#include "hvd/trace/counters_text.h"
#include "hvd/trace/flight.h"
#include "hvd/trace/flight_signals.h"
#include "hvd/trace/timeline.h"

namespace hvd::engine {

struct FastPathEntry;

class Recorder {
 public:
  // `signals`: handle SIGUSR2, and dump before a crash where there is a folder to dump to.
  Recorder(const World& world, const Config& config, bool signals);

  void KnowSet(int id, const std::vector<Rank>& ranks);

  // Submitted, but somebody else has the token.
  void Queued(Operation* op);
  // The engine begins with it.
  void Submitted(Operation* op);
  // The agreement was begun: within Submitted's turn, or later.
  void SentAtOnce(const Operation& op) { flight_.Mark(op.flight, trace::FlightState::kSent, begun_); }
  void Sent(const Operation& op) { flight_.Mark(op.flight, trace::FlightState::kSent, Now()); }
  // A member other than this rank wants it.
  void Ready(int set, std::string_view name, Rank rank);
  // `last`: whom the others waited for; -1 where that is not known.
  void Agreed(Operation* op, int set, uint64_t position, Rank last) { AgreedAt(Now(), op, set, position, last); }
  void AgreedAt(uint64_t now, Operation* op, int set, uint64_t position, Rank last);
  // Data moves: within Agreed's turn, or later.
  void RunningAtOnce(Operation* op) {
    flight_.Mark(op->flight, trace::FlightState::kRunning, op->ticks.agreed);
    op->running = op->agreed;
  }
  void Running(Operation* op) {
    flight_.Mark(op->flight, trace::FlightState::kRunning, Now());
    if (timeline_.on()) op->running = clock_.Now();
  }
  void Over(Operation* op, const Error& error);
  // Its caller gets the outcome now; later than Over in a group.
  void Concluded(const Operation& op, bool succeeded);
  // An operation that takes the fast path: it was announced at entry->begun, and is over now. `last` as in Agreed.
  void BeginFastPath(FastPathEntry* entry);
  void EndFastPath(const FastPathEntry& entry, uint64_t position, Rank last);
  uint64_t Now() const { return flight_.ticks().Now(); }
  bool draws() const { return timeline_.on(); }
  // Its caller got a time-out, and will hear no more of it.
  void TimedOut(const Operation& op);
  void Cycle() {
    if (timeline_.on()) timeline_.Cycle(clock_.Now());
  }

  // The last operations, the newest first.
  std::vector<trace::FlightGlimpse> Recent(size_t most) const { return flight_.Recent(most); }
  // Nanoseconds since it was submitted; negative: not known any more.
  int64_t AgeOf(const Operation& op) const { return flight_.AgeOf(op.flight); }

  void Missing(const Operation& op, const std::vector<Rank>& ranks) { flight_.SetMissing(op.flight, ranks); }
  trace::Counters& counters() { return counters_; }
  const trace::Counters& counters() const { return counters_; }
  // All but the transports to the peers.
  trace::CounterSnapshot Read() const;

  // "stall", "shutdown", "revoked: ...".
  void Dump(std::string_view reason);

  // Rank 0 writes `path`; the others theirs beside it where HOROVOD_TIMELINE_ALL_RANKS is set, else nothing.
  Status StartTimeline(const std::string& path, bool mark_cycles);
  void StopTimeline() { timeline_.Stop(); }
  // What must be added to this host's wall clock to get rank 0's was measured.
  void KnowClock(int64_t offset_ns) {
    clock_offset_ns_ = offset_ns;
    timeline_.KnowClock(offset_ns);
  }

 private:
  // The end of an operation in the timeline. Not agreed: it failed before.
  void Draw(const Operation& op, bool agreed);

  const Config& config_;
  const Rank rank_;
  const int size_;
  const int generation_;
  const std::string host_;
  SteadyClock clock_;
  trace::Counters counters_;
  std::atomic<int64_t> clock_offset_ns_{0};
  trace::FlightRecorder flight_;
  uint64_t begun_ = 0;  // time of the last Submitted
  trace::Timeline timeline_;
  std::optional<DumpWriter> dumps_;
  std::optional<trace::FlightSignals> signals_;
};

}  // namespace hvd::engine
