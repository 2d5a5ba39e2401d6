// SPDX-License-Identifier: Apache-2.0
// Reductions of large data by slices. Where all of it is readable when the marks are, without a machine: see
// engine/short_way.cc.
#include <algorithm>

#include "hvd/base/fetch.h"
#include "hvd/collective/pattern/slices.h"
#include "hvd/collective/window/chunked_reduce.h"
#include "hvd/collective/window/chunked_scatter.h"
#include "hvd/comm/host/window_communicator.h"
#include "hvd/comm/host/window_flow.h"

namespace hvd::comm::host {

using collective::window::ChunkedReduce;
using collective::window::ChunkedScatter;
using collective::window::Meeting;
using collective::window::Stream;
using kernel::Stores;

namespace {

// Counts what its steps take, but not what they wait for: other operations may be under way meanwhile.
class TimedReduce final : public collective::Machine {
 public:
  TimedReduce(std::unique_ptr<Machine> inner, const Clock* clock, Trial* trial, size_t bytes, bool fetched)
      : inner_(std::move(inner)), clock_(clock), trial_(trial), bytes_(bytes), fetched_(fetched) {}

  collective::Progress Step() override {
    const Time begun = clock_->Now();
    const collective::Progress progress = inner_->Step();
    if (progress != collective::Progress::kWaiting) took_ += clock_->Now() - begun;
    if (progress == collective::Progress::kDone) trial_->Measured(OpKind::kAllreduce, bytes_, fetched_, took_);
    return progress;
  }
  void CollectAwaited(std::vector<int>* members) const override { inner_->CollectAwaited(members); }
  Error error() const override { return inner_->error(); }

 private:
  const std::unique_ptr<Machine> inner_;
  const Clock* const clock_;
  Trial* const trial_;
  const size_t bytes_;
  const bool fetched_;
  Duration took_{};
};

Stores StoresBy(bool fetched) { return fetched ? Stores::kFetched : Stores::kPlain; }

}  // namespace

bool WindowCommunicator::StoresOnTrial(const Meeting& meeting, const Work& work) const {
  // Shorter pieces are over before it matters.
  constexpr size_t kLeastPiece = 128 << 10;
  const size_t piece = std::min(work.payload.bytes(), meeting.staging.chunk_bytes) / meeting.members();
  return options_.clock != nullptr && piece >= kLeastPiece && IsDirect(meeting);
}

size_t WindowCommunicator::SlicedBytes(const Meeting& meeting, const Work& work) {
  return IsDirect(meeting) ? work.payload.bytes() : meeting.staging.chunk_bytes;
}

std::unique_ptr<collective::Machine> WindowCommunicator::BeginReduce(const Meeting& meeting, const Work* work) {
  const size_t bytes = work->payload.bytes();
  const bool on_trial = StoresOnTrial(meeting, *work);
  const bool fetched = on_trial && trial_.Offers(OpKind::kAllreduce, bytes, meeting.position);
  auto machine = std::make_unique<ChunkedReduce>(meeting, work->reduce_op, work->dtype, work->scale, &work->payload, 0,
                                                 StoresBy(fetched));
  if (!on_trial) return machine;
  return std::make_unique<TimedReduce>(std::move(machine), options_.clock, &trial_, bytes, fetched);
}

size_t WindowCommunicator::ReduceSlices(uint64_t position, const Work& work) {
  Meeting meeting = MeetingFor(position, work.op);
  FetchToWrite(&meeting.counters(stream_.me()));
  size_t chunks;
  if (work.op == OpKind::kReducescatter) {
    chunks = ScatterDirect(meeting, work.reduce_op, work.dtype, work.scale, work.member_bytes, work.result_to);
  } else {
    const size_t bytes = work.payload.bytes();
    const bool on_trial = StoresOnTrial(meeting, work);
    const bool fetched = on_trial && trial_.Offers(work.op, bytes, position);
    const Time begun = on_trial ? options_.clock->Now() : Time();
    chunks = collective::pattern::ChunkCount(bytes, meeting.staging.chunk_bytes);
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      ReduceSlice(meeting, work.reduce_op, work.dtype, work.scale, bytes, chunk, StoresBy(fetched));
      meeting.PublishOut(chunk + 1);
    }
    if (on_trial) trial_.Measured(work.op, bytes, fetched, options_.clock->Now() - begun);
  }
  CountFlow(work, stream_.me(), SlicedBytes(meeting, work), options_.flows);
  return chunks;
}

int WindowCommunicator::Storing(uint64_t position, size_t chunks) const {
  const uint64_t finished = Stream::Count(position, chunks);
  for (int m = 0; m < stream_.members(); ++m) {
    if (stream_.counters(m, position).out.load(std::memory_order_acquire) < finished) return m;
  }
  return -1;
}

void WindowCommunicator::TakeResult(uint64_t position, const Work& work) const {
  const Meeting meeting = MeetingAt(position);
  if (collective::window::IsStoredOut(meeting.header(stream_.me()).place)) return;
  work.payload.Scatter(0, work.payload.bytes(), meeting.Target(stream_.me(), 0));
}

std::unique_ptr<collective::Machine> WindowCommunicator::GoOn(uint64_t position, const Work* work, size_t chunks) {
  const Meeting meeting = MeetingFor(position, work->op);
  if (work->op == OpKind::kReducescatter) {
    return std::make_unique<ChunkedScatter>(meeting, work->reduce_op, work->dtype, work->scale, work->member_bytes,
                                            work->result_to, &work->payload, chunks);
  }
  return std::make_unique<ChunkedReduce>(meeting, work->reduce_op, work->dtype, work->scale, &work->payload, chunks);
}

bool WindowCommunicator::MayBeDirect(OpKind op, size_t bytes) const {
  for (const Places::Rule& rule : cut_.latest().places.For(op).in_order) {
    if (rule.bytes.Has(bytes) && collective::window::IsStoredOut(rule.place)) return true;
  }
  return false;
}

}  // namespace hvd::comm::host
