// SPDX-License-Identifier: Apache-2.0
// Reductions of large data by slices. Where all of it is readable when the marks are, without a machine: see
// engine/fast_path.cc.
#include <algorithm>

#include "hvd/base/prefetch.h"
#include "hvd/collective/pattern/slices.h"
#include "hvd/collective/window/chunked_reduce.h"
#include "hvd/collective/window/chunked_scatter.h"
#include "hvd/comm/builtin/window_communicator.h"
#include "hvd/comm/builtin/window_flow.h"

namespace hvd::comm::builtin {

using collective::window::ChunkedReduce;
using collective::window::ChunkedScatter;
using collective::window::MarkStream;
using collective::window::PositionView;
using kernel::Stores;

namespace {

// Counts what its steps take, but not what they wait for: other operations may be under way meanwhile.
class TimedReduce final : public collective::Machine {
 public:
  TimedReduce(std::unique_ptr<Machine> inner, const Clock* clock, VariantSelector* selector, size_t bytes,
              bool prefetched)
      : inner_(std::move(inner)), clock_(clock), selector_(selector), bytes_(bytes), prefetched_(prefetched) {}

  collective::Progress Step() override {
    const Time begun = clock_->Now();
    const collective::Progress progress = inner_->Step();
    if (progress != collective::Progress::kWaiting) took_ += clock_->Now() - begun;
    if (progress == collective::Progress::kDone) selector_->Measured(OpKind::kAllreduce, bytes_, prefetched_, took_);
    return progress;
  }
  void CollectAwaited(std::vector<int>* members) const override { inner_->CollectAwaited(members); }
  int Damaged() const override { return inner_->Damaged(); }
  Error error() const override { return inner_->error(); }

 private:
  const std::unique_ptr<Machine> inner_;
  const Clock* const clock_;
  VariantSelector* const selector_;
  const size_t bytes_;
  const bool prefetched_;
  Duration took_{};
};

Stores StoresBy(bool prefetched) { return prefetched ? Stores::kPrefetched : Stores::kPlain; }

}  // namespace

bool WindowCommunicator::StoresOnTrial(const PositionView& view, const Work& work) const {
  // Shorter pieces are over before it matters.
  constexpr size_t kLeastPiece = 128 << 10;
  const size_t piece = std::min(work.payload.bytes(), view.staging.chunk_bytes) / view.members();
  return options_.clock != nullptr && piece >= kLeastPiece && IsDirect(view);
}

size_t WindowCommunicator::SlicedBytes(const PositionView& view, const Work& work) {
  return IsDirect(view) ? work.payload.bytes() : view.staging.chunk_bytes;
}

std::unique_ptr<collective::Machine> WindowCommunicator::BeginReduce(const PositionView& view, const Work* work) {
  const size_t bytes = work->payload.bytes();
  const bool on_trial = StoresOnTrial(view, *work);
  const bool prefetched = on_trial && selector_.Offers(OpKind::kAllreduce, bytes, view.position);
  auto machine = std::make_unique<ChunkedReduce>(view, work->reduce_op, work->dtype, work->scale, &work->payload, 0,
                                                 StoresBy(prefetched));
  if (!on_trial) return machine;
  return std::make_unique<TimedReduce>(std::move(machine), options_.clock, &selector_, bytes, prefetched);
}

size_t WindowCommunicator::ReduceSlices(uint64_t position, const Work& work) {
  PositionView view = ViewFor(position, work.op);
  PrefetchForWrite(&view.counters(stream_.me()));
  size_t chunks;
  if (work.op == OpKind::kReducescatter) {
    chunks = ScatterDirect(view, work.reduce_op, work.dtype, work.scale, work.member_bytes, work.result_to);
  } else {
    const size_t bytes = work.payload.bytes();
    const bool on_trial = StoresOnTrial(view, work);
    const bool prefetched = on_trial && selector_.Offers(work.op, bytes, position);
    const Time begun = on_trial ? options_.clock->Now() : Time();
    chunks = collective::pattern::ChunkCount(bytes, view.staging.chunk_bytes);
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      ReduceSlice(view, work.reduce_op, work.dtype, work.scale, bytes, chunk, StoresBy(prefetched));
      view.PublishOut(chunk + 1);
    }
    if (on_trial) selector_.Measured(work.op, bytes, prefetched, options_.clock->Now() - begun);
  }
  CountFlow(work, stream_.me(), SlicedBytes(view, work), options_.flows);
  return chunks;
}

int WindowCommunicator::Storing(uint64_t position, size_t chunks) const {
  const uint64_t finished = MarkStream::Count(position, chunks);
  for (int m = 0; m < stream_.members(); ++m) {
    // No member counts further, and none begins with the next position in this slot before this one released it.
    if (stream_.counters(m, position).out.load(std::memory_order_acquire) != finished) return m;
  }
  return -1;
}

void WindowCommunicator::TakeResult(uint64_t position, const Work& work) const {
  const PositionView view = ViewAt(position);
  if (collective::window::IsStoredOut(view.place(stream_.me()).location)) return;
  work.payload.Scatter(0, work.payload.bytes(), view.Target(stream_.me(), 0));
}

std::unique_ptr<collective::Machine> WindowCommunicator::GoOn(uint64_t position, const Work* work, size_t chunks) {
  const PositionView view = ViewFor(position, work->op);
  if (work->op == OpKind::kReducescatter) {
    return std::make_unique<ChunkedScatter>(view, work->reduce_op, work->dtype, work->scale, work->member_bytes,
                                            work->result_to, &work->payload, chunks);
  }
  return std::make_unique<ChunkedReduce>(view, work->reduce_op, work->dtype, work->scale, &work->payload, chunks);
}

bool WindowCommunicator::MayBeDirect(OpKind op, size_t bytes) const {
  for (const LocationRules::Rule& rule : cut_.latest().locations.For(op).in_order) {
    if (rule.bytes.Has(bytes) && collective::window::IsStoredOut(rule.location)) return true;
  }
  return false;
}

}  // namespace hvd::comm::builtin
