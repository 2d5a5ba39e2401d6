// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sending half of a framed pair: what is to be written next, without any stream to write it to.
//
// Words. *Prompt* frames (messages, eager data, announcements, grants) leave in the order in which they were added.
// *Bulk* frames carry granted data; lanes take turns. A *batch* is what one write offers: some prompt frames, then one
// bulk frame.
//
// Data is announced, in the order of its lane, when it is sent, and waits for a grant; grants may come first. Announced
// data of a lane has two classes, small (at most kEagerBytes; only when the eager window is used up) and large, which
// overtake each other freely; within a class the j-th grant, the j-th announcement and the j-th data belong together.
//
// Thread safety: none.
// Lifetime: user buffers are referred to until their completion is handed out.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/transport/frame.h"
#include "hvd/transport/framed_pair_cursor.h"
#include "hvd/transport/framed_pair_ops.h"
#include "hvd/transport/pair.h"

namespace hvd::transport {

class Outbox {
 public:
  // `code`: goes behind the message; empty where the connection has no seal.
  void AddMessage(std::span<const std::byte> message, std::span<const std::byte> code);
  void AddSend(Lane lane, std::vector<iovec> data, Completion done);
  void AddGrant(Lane lane, uint64_t total);
  void AddCredit(uint64_t bytes);
  void AddFail(std::span<const std::byte> reason, std::span<const std::byte> code);
  void AddBye();

  // kInternal if the peer's Recv has another size than our Send. May come before the Send; then the Send finds out.
  Status OnGrant(Lane lane, uint64_t total);
  Status OnCredit(uint64_t bytes);
  // Set when a Send met an earlier grant of another size.
  const Status& status() const { return status_; }

  // The bytes to write next; empty if there are none. Stays valid until Wrote or anything is added.
  std::span<const iovec> Next();
  void Wrote(size_t bytes, DueCalls* due);
  // Whether there is something to write besides what Next gave.
  bool HasMore() const { return !prompt_.empty() || !turns_.empty(); }
  // Whether all there is only prepares for data (announcements, grants, credit): it gains by travelling together.
  bool OnlyPrepares() const { return batch_.empty() && turns_.empty() && !urgent_; }

  // Takes out all Sends, failed with `error`. What stays to be written refers to no user buffer any more: the rest of a
  // frame that is cut by the end of the last write, and messages.
  void AbortSends(const Error& error, DueCalls* due);

 private:
  struct SendOp {
    IovecCursor data;      // what is not yet in a batch
    size_t unwritten = 0;  // what no write has taken yet
    size_t total = 0;
    Completion done;
  };
  struct Frame {
    std::array<std::byte, kFrameHeaderBytes> header;
    size_t header_bytes = kFrameHeaderBytes;
    size_t payload_bytes = 0;
    bool is_message = false;
    std::vector<std::byte> owned;  // the payload, unless op has it
    std::shared_ptr<SendOp> op;
    size_t size() const { return header_bytes + payload_bytes; }
  };
  struct Key {
    Lane lane;
    bool small;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const { return std::hash<Lane>()(key.lane * 2 + (key.small ? 1 : 0)); }
  };
  struct BulkLane {
    std::deque<std::shared_ptr<SendOp>> ops;  // announced; the first `granted` of them may go
    size_t granted = 0;
    std::deque<uint64_t> early_grants;  // not empty only when every op is granted
    bool queued = false;                // in turns_
  };

  Frame& AddFrame(const FrameHeader& header);
  void AddOwned(FrameType type, std::span<const std::byte> payload, std::span<const std::byte> code);
  Status Grant(const Key& key, BulkLane& lane, uint64_t total);
  void QueueIfReady(const Key& key, BulkLane& lane);
  void BuildBatch();
  void AddBulkFrame();
  void AppendToBatch(Frame frame);

  std::deque<Frame> prompt_;
  bool urgent_ = false;  // there are messages or data among them
  std::unordered_map<Key, BulkLane, KeyHash> bulk_;
  size_t early_grants_ = 0;  // of all lanes
  std::deque<Key> turns_;    // lanes with granted data, in order of their turn
  size_t eager_left_ = kEagerWindow;
  Status status_;

  std::deque<Frame> batch_;    // frames not wholly written
  std::vector<iovec> pieces_;  // their bytes
  size_t first_piece_ = 0;     // pieces before it are written
  size_t front_written_ = 0;   // bytes of batch_.front() that are written
};

}  // namespace hvd::transport
