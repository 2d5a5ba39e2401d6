// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/recorder.h"

#include "hvd/base/log.h"
#include "hvd/engine/process_set.h"
#include "hvd/engine/registry.h"

namespace hvd::engine {

Recorder::Recorder(const World& world, const Config& config, bool signals)
    : config_(config),
      rank_(world.layout.rank),
      size_(world.layout.size),
      host_(world.ranks[world.layout.rank].hostname),
      flight_({.rank = rank_,
               .size = size_,
               .generation = world.generation,
               .host = host_,
               .folder = config.flight_dir,
               .entries = static_cast<uint32_t>(config.flight_entries)}) {
  for (Rank rank = 0; rank < size_; ++rank) {
    flight_.AddPeer(rank, world.ranks[rank].hostname, static_cast<int>(world.ranks[rank].pid));
  }
  if (signals && !config.flight_dir.empty()) signals_.emplace(flight_);
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

void Recorder::Agreed(Operation* op, int set, uint64_t position) {
  op->ticks.agreed = Now();
  flight_.MarkAgreed(op->flight, position, op->ticks.agreed);
  if (!timeline_.on() || op->submitted == Time{}) return;
  op->agreed = clock_.Now();
  timeline_.Negotiated(set, op->request.name, op->request.signature.op, op->submitted, op->agreed);
}

void Recorder::Over(const Operation& op, int set, const Error& error) {
  if (error.code == Code::kOk) {
    flight_.Mark(op.flight, trace::FlightState::kDone, Now());
  } else {
    flight_.MarkFailed(op.flight, error.code, error.rank, Now());
  }
  if (!timeline_.on() || op.submitted == Time{}) return;
  timeline_.Executed(set, op.request.name, op.request.signature.op, op.agreed, clock_.Now(), op.request.signature.dtype,
                     op.output_shape);
}

void Recorder::Dump(std::string_view reason) {
  if (config_.flight_dir.empty()) return;
  if (auto dumped = flight_.Dump(reason); !dumped) log::Warning("{}", dumped.error().message);
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
