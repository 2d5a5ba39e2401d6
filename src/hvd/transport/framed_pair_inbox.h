// SPDX-License-Identifier: Apache-2.0
#pragma once
// The receiving half of a framed pair: cuts bytes into frames and brings data to the Recv that it belongs to, without
// any stream to read from.
//
// Use: ask Targets() where the next bytes should go, report them with Filled(), then take events by Next() until there
// are none. Between two calls the object is consistent, so user code may run and post more.
//
// Words. An *arrival* is a Send that we know of and that no Recv has met; a *posted* Recv has met no arrival. Of these
// two lists of a lane one is always empty. Met announced data is *expected*, in two classes (see Outbox).
//
// Thread safety: none.
// Lifetime: user buffers are referred to until their completion is handed out.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/transport/frame.h"
#include "hvd/transport/framed_pair_cursor.h"
#include "hvd/transport/framed_pair_ops.h"
#include "hvd/transport/framed_pair_outbox.h"
#include "hvd/transport/pair.h"

namespace hvd::transport {

struct InboxEvent {
  enum Kind { kNothing, kMessage, kBytes, kGrant, kCredit, kFail, kBye } kind = kNothing;
  std::span<const std::byte> payload{};  // of kMessage and kFail; valid until the next call of the Inbox's reading side
  std::shared_ptr<RecvOp> op{};          // of kBytes: more bytes of it are there, perhaps all
  uint64_t lane = 0;
  uint64_t total = 0;
};

class Inbox {
 public:
  // Grants and credits go out by `outbox`, which outlives this.
  explicit Inbox(Outbox* outbox) : outbox_(outbox), staging_(kStagingBytes) {}

  // Posts a Recv. If bytes were there already, `op` is returned and has them; else nullptr. kInternal if the sizes
  // differ.
  Result<std::shared_ptr<RecvOp>> Post(Lane lane, std::vector<iovec> into, PartialArrival on_bytes, Completion done);

  // Where the next bytes of the stream go: user buffers where possible, so that large data is not copied.
  std::span<const iovec> Targets();
  void Filled(size_t bytes);
  // What came of the bytes, one event at a time; kNothing when more bytes are needed. Errors are violations of the
  // protocol by the peer and different sizes (kInternal).
  Result<InboxEvent> Next();
  // Whether the stream stands between two frames.
  bool at_boundary() const { return !in_frame_ && staged_begin_ == staged_end_; }

  // Takes out all Recvs, failed with `error`. `keep_arrivals`: small data that came whole can still be posted for.
  void AbortRecvs(const Error& error, bool keep_arrivals, DueCalls* due);
  // After that: whether the data for the next Recv of a lane is there. If not, that Recv is the one that fails.
  bool HasForLate(Lane lane, size_t total);

 private:
  // Enough for many small frames at once; small against a data frame, because what lands here is copied once more.
  static constexpr size_t kStagingBytes = 8 << 10;

  struct Arrival {
    size_t total = 0;
    bool eager = false;
    size_t filled = 0;
    std::vector<std::byte> data{};  // of an eager one
  };
  struct RecvLane {
    std::deque<std::shared_ptr<RecvOp>> posted;
    std::deque<std::shared_ptr<Arrival>> arrivals;
    std::array<std::deque<std::shared_ptr<RecvOp>>, 2> expected;  // [small]
    bool idle() const { return posted.empty() && arrivals.empty() && expected[0].empty() && expected[1].empty(); }
  };

  Status BeginFrame(const FrameHeader& header);
  Status BeginArrival(const FrameHeader& header);
  Status BeginData(const FrameHeader& header);
  InboxEvent EndFrame();
  void TakeStaged();
  void Meet(Lane id, RecvLane& lane, const std::shared_ptr<RecvOp>& op, const std::shared_ptr<Arrival>& arrival);
  Status CheckSizes(Lane lane, size_t sent, size_t received) const;
  void ReturnWindow(size_t total);
  void EraseIfIdle(Lane lane);

  Outbox* const outbox_;
  std::unordered_map<Lane, RecvLane> lanes_;
  // Of arrivals that no Recv has claimed. A peer that goes beyond its window is broken.
  size_t unclaimed_cost_ = 0;
  size_t unclaimed_ = 0;
  size_t window_to_return_ = 0;

  // The frame whose payload is being read, and where the payload goes: to op_, arrival_ or plain_.
  bool in_frame_ = false;
  FrameHeader frame_{};
  size_t frame_left_ = 0;
  bool progress_ = false;  // bytes came to op_ since the last event
  std::shared_ptr<RecvOp> op_;
  std::shared_ptr<Arrival> arrival_;
  std::vector<std::byte> plain_;
  const std::byte* staged_payload_ = nullptr;  // instead of plain_, where the staging area has it all

  std::vector<std::byte> staging_;
  size_t staged_begin_ = 0;
  size_t staged_end_ = 0;
  std::vector<iovec> targets_;
};

}  // namespace hvd::transport
