// SPDX-License-Identifier: Apache-2.0
// Reductions whose data is all readable when the marks are: by slices, without a machine. See engine/short_way.cc.
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

size_t WindowCommunicator::ReduceSlices(uint64_t position, const Work& work) {
  Meeting meeting = MeetingFor(position, work.op);
  FetchToWrite(&meeting.counters(stream_.me()));
  size_t chunks;
  if (work.op == OpKind::kReducescatter) {
    chunks = ScatterDirect(meeting, work.reduce_op, work.dtype, work.scale, work.member_bytes, work.result_to);
  } else {
    const size_t bytes = work.payload.bytes();
    chunks = collective::pattern::ChunkCount(bytes, meeting.staging.chunk_bytes);
    for (size_t chunk = 0; chunk < chunks; ++chunk) {
      ReduceSlice(meeting, work.reduce_op, work.dtype, work.scale, bytes, chunk);
      meeting.PublishOut(chunk + 1);
    }
  }
  CountFlow(work, stream_.me(), meeting.staging.chunk_bytes, options_.flows);
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
