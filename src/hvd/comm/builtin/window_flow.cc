// SPDX-License-Identifier: Apache-2.0
#include "hvd/comm/builtin/window_flow.h"

#include "hvd/collective/pattern/slices.h"

namespace hvd::comm::builtin {
namespace {

// Bytes that a member reduces for all.
size_t SliceBytes(const Work& work, size_t chunk_bytes, int members, int member) {
  const size_t element = SizeOf(work.dtype);
  const auto slice = [&](size_t bytes) {
    return collective::pattern::Slice(bytes / element, element, members, member).size() * element;
  };
  const size_t bytes = work.payload.bytes();
  return bytes / chunk_bytes * slice(chunk_bytes) + slice(bytes % chunk_bytes);
}

struct Moved {
  size_t sent = 0;
  size_t received = 0;
};

Moved Between(const Work& work, int me, int other, int members, size_t chunk_bytes) {
  const size_t bytes = work.payload.bytes();
  switch (work.op) {
    case OpKind::kAllreduce: {
      // Each reads its slice from the other, and stores the result to it. The slices of two are all there is, so
      // that the commonest case needs no divisions.
      if (chunk_bytes == 0 || members == 2) return {bytes, bytes};
      const size_t both = SliceBytes(work, chunk_bytes, members, me) + SliceBytes(work, chunk_bytes, members, other);
      return {both, both};
    }
    case OpKind::kBroadcast:
      return {work.root == me ? bytes : 0, work.root == other ? bytes : 0};
    case OpKind::kAllgather:
      return {work.member_bytes[me], work.member_bytes[other]};
    case OpKind::kReducescatter:
      return {work.member_bytes[other], work.member_bytes[me]};
    case OpKind::kAlltoall:
      return {work.exchange_bytes[static_cast<size_t>(me) * members + other],
              work.exchange_bytes[static_cast<size_t>(other) * members + me]};
    default:
      return {};
  }
}

}  // namespace

void CountReduceFlow(const Work& work, int me, size_t chunk_bytes, int owners, std::span<PeerByteCounts* const> flows) {
  const auto carried = [&](int member) {
    return member < owners ? SliceBytes(work, chunk_bytes, owners, member) : size_t{0};
  };
  for (int other = 0; other < static_cast<int>(flows.size()); ++other) {
    if (other == me) continue;
    const size_t both = carried(me) + carried(other);
    flows[other]->sent.Add(both);
    flows[other]->received.Add(both);
  }
}

void CountFlow(const Work& work, int me, size_t chunk_bytes, std::span<PeerByteCounts* const> flows) {
  const int members = static_cast<int>(flows.size());
  for (int other = 0; other < members; ++other) {
    if (other == me) continue;
    const Moved moved = Between(work, me, other, members, chunk_bytes);
    flows[other]->sent.Add(moved.sent);
    flows[other]->received.Add(moved.received);
  }
}

}  // namespace hvd::comm::builtin
