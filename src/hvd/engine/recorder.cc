// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/recorder.h"

#include "hvd/base/log.h"
#include "hvd/engine/fast_path_cache.h"
#include "hvd/engine/process_set/process_set.h"
#include "hvd/engine/registry.h"

namespace hvd::engine {
namespace {

// Clocks of two cores may differ by a little.
uint64_t Span(uint64_t from, uint64_t to) { return to > from ? to - from : 0; }

// The activity in which data moves; nullptr if none does.
const char* MovementOf(const Operation& op) {
  const comm::ActivityNames* names = op.set->activities();
  if (names == nullptr) return nullptr;
  switch (op.request.signature.op) {
    case OpKind::kAllreduce:
      return op.request.signature.reduce_op == ReduceOp::kAdasum ? names->adasum : names->allreduce;
    case OpKind::kAllgather:
      return names->allgather;
    case OpKind::kBroadcast:
      return names->broadcast;
    case OpKind::kAlltoall:
      return names->alltoall;
    case OpKind::kReducescatter:
      return names->reducescatter;
    default:
      return nullptr;
  }
}

}  // namespace

Recorder::Recorder(const World& world, const Config& config, bool signals)
    : config_(config),
      rank_(world.layout.rank),
      size_(world.layout.size),
      generation_(world.generation),
      host_(world.ranks[world.layout.rank].hostname),
      counters_(size_),
      flight_({.rank = rank_,
               .size = size_,
               .generation = world.generation,
               .host = host_,
               .folder = config.flight_dir,
               .entries = static_cast<uint32_t>(config.flight_entries)}) {
  for (Rank rank = 0; rank < size_; ++rank) {
    flight_.AddPeer(rank, world.ranks[rank].hostname, static_cast<int>(world.ranks[rank].pid));
  }
  if (!config.flight_dir.empty()) dumps_.emplace(config.flight_dir, flight_.path());
  if (signals) signals_.emplace(flight_, [this](std::string_view reason) { Dump(reason); });
  if (config.timeline.empty() || config.timeline == "DYNAMIC") return;
  if (auto started = StartTimeline(config.timeline, config.timeline_mark_cycles); !started) {
    log::Warning("HOROVOD_TIMELINE={}: {}", config.timeline, started.error().message);
  }
}

void Recorder::KnowSet(int id, const std::vector<Rank>& ranks) {
  if (id != 0) flight_.AddSet(id, ranks);
}

void Recorder::Queued(Operation* op) {
  op->ticks.submitted = Now();
  if (timeline_.on()) op->submitted = clock_.Now();
}

void Recorder::Submitted(Operation* op) {
  begun_ = Now();
  if (op->ticks.submitted == 0) op->ticks.submitted = begun_;
  const controller::Signature& signature = op->request.signature;
  op->flight = flight_.Submit({.set = op->set->id(),
                               .name = op->request.name,
                               .op = signature.op,
                               .dtype = signature.dtype,
                               .reduce = signature.reduce_op,
                               .root = signature.root,
                               .bytes = op->input_bytes,
                               .shape = signature.shape},
                              &op->entry->flight, op->ticks.submitted);
  if (!timeline_.on()) return;
  if (op->submitted == Time{}) op->submitted = clock_.Now();
  op->agreed = op->submitted;
  timeline_.Ready(op->set->id(), op->request.name, rank_, op->submitted);
}

void Recorder::Ready(int set, std::string_view name, Rank rank) {
  if (timeline_.on()) timeline_.Ready(set, name, rank, clock_.Now());
}

void Recorder::AgreedAt(uint64_t now, Operation* op, int set, uint64_t position, Rank last) {
  op->ticks.agreed = now;
  flight_.MarkAgreed(op->flight, position, op->ticks.agreed);
  if (last >= 0 && !op->stands_in) {
    trace::Counters::Peer& peer = counters_.peers[last];
    peer.last.Add(1);
    peer.wait.Add(Span(op->ticks.submitted, op->ticks.agreed));
  }
  if (!timeline_.on() || op->submitted == Time{}) return;
  op->agreed = clock_.Now();
  timeline_.Negotiated(set, op->request.name, op->request.signature.op, op->submitted, op->agreed);
}

void Recorder::Over(Operation* op, const Error& error) {
  op->ticks.over = Now();
  const bool agreed = op->ticks.agreed != 0 || op->set->size() == 1;
  // Without an agreement all of its time was waiting, unless there was nobody to wait for.
  if (op->ticks.agreed == 0) op->ticks.agreed = op->set->size() == 1 ? op->ticks.submitted : op->ticks.over;
  if (error.code == Code::kOk) {
    flight_.Mark(op->flight, trace::FlightState::kDone, op->ticks.over);
  } else {
    flight_.MarkFailed(op->flight, error.code, error.rank, op->ticks.over);
  }
  if (timeline_.on() && op->submitted != Time{}) Draw(*op, agreed);
}

void Recorder::Draw(const Operation& op, bool agreed) {
  const Time now = clock_.Now();
  const int set = op.set->id();
  const std::string& name = op.request.name;
  const controller::Signature& signature = op.request.signature;
  if (!agreed) return timeline_.Negotiated(set, name, signature.op, op.submitted, now);
  if (op.running != Time{}) {
    const char* wait = SizesResult(signature.op) ? "ALLOCATE_OUTPUT" : "QUEUE";
    if (op.running > op.agreed) timeline_.Activity(set, name, wait, op.agreed, op.running);
    if (const char* moved = MovementOf(op)) timeline_.Activity(set, name, moved, op.running, now);
  }
  timeline_.Executed(set, name, signature.op, op.agreed, now, signature.dtype, op.output_shape);
}

void Recorder::Concluded(const Operation& op, bool succeeded) {
  const controller::Signature& signature = op.request.signature;
  trace::Counters::Kind& kind = counters_.kinds[trace::CountedKind(signature.op, signature.reduce_op)];
  if (succeeded) {
    kind.completed.Add(1);
    kind.bytes.Add(op.input_bytes);
  } else {
    kind.failed.Add(1);
  }
  kind.wait.Add(Span(op.ticks.submitted, op.ticks.agreed));
  kind.run.Add(Span(op.ticks.agreed, op.ticks.over));
}

void Recorder::BeginFastPath(FastPathEntry* entry) {
  const controller::Signature& signature = entry->request.signature;
  entry->flight_entry = flight_.Submit({.set = entry->process_set,
                                        .name = entry->request.name,
                                        .op = signature.op,
                                        .dtype = signature.dtype,
                                        .reduce = signature.reduce_op,
                                        .root = signature.root,
                                        .bytes = entry->input_bytes,
                                        .shape = signature.shape},
                                       &entry->flight, entry->begun);
  flight_.Mark(entry->flight_entry, trace::FlightState::kSent, entry->begun);
  counters_.cache_hits.Add(1);
}

void Recorder::EndFastPath(const FastPathEntry& entry, uint64_t position, Rank last) {
  const uint64_t now = Now();
  const uint64_t agreed = entry.agreed != 0 ? entry.agreed : now;
  flight_.MarkAgreed(entry.flight_entry, position, agreed);
  flight_.Mark(entry.flight_entry, trace::FlightState::kRunning, agreed);
  flight_.Mark(entry.flight_entry, trace::FlightState::kDone, now);
  trace::Counters::Peer& peer = counters_.peers[last];
  peer.last.Add(1);
  peer.wait.Add(Span(entry.begun, agreed));
  trace::Counters::Kind& kind = counters_.kinds[trace::CountedKind(entry.work.op, entry.work.reduce_op)];
  kind.completed.Add(1);
  kind.bytes.Add(entry.input_bytes);
  kind.wait.Add(Span(entry.begun, agreed));
  kind.run.Add(Span(agreed, now));
  counters_.operations.Add(1);
}

void Recorder::TimedOut(const Operation& op) {
  const controller::Signature& signature = op.request.signature;
  trace::Counters::Kind& kind = counters_.kinds[trace::CountedKind(signature.op, signature.reduce_op)];
  kind.failed.Add(1);
  kind.timed_out.Add(1);
  kind.wait.Add(Span(op.ticks.submitted, Now()));
}

trace::CounterSnapshot Recorder::Read() const {
  trace::CounterSnapshot snapshot = trace::Read(counters_, flight_.ticks());
  snapshot.rank = rank_;
  snapshot.size = size_;
  snapshot.generation = generation_;
  snapshot.host = host_;
  snapshot.version = HVD_VERSION;
  return snapshot;
}

void Recorder::Dump(std::string_view reason) {
  if (std::string text = flight_.Snapshot(reason); !text.empty()) dumps_->Write(std::move(text));
}

Status Recorder::StartTimeline(const std::string& path, bool mark_cycles) {
  if (rank_ != 0 && !config_.timeline_all_ranks) return {};
  return timeline_.Start({.path = trace::TimelinePath(path, rank_),
                          .rank = rank_,
                          .size = size_,
                          .host = host_,
                          .mark_cycles = mark_cycles,
                          .max_bytes = static_cast<uint64_t>(config_.timeline_max_bytes),
                          .clock_offset_ns = clock_offset_ns_});
}

}  // namespace hvd::engine
