// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/framed_pair_outbox.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace hvd::transport {
namespace {

constexpr size_t kBatchBytes = 256 << 10;
constexpr size_t kBatchFrames = 64;
constexpr size_t kBulkPieces = 512;
// Receives that a peer may post before this rank sends anything for them. Far more than a job has operations in flight.
constexpr size_t kMostEarlyGrants = 1 << 20;

bool IsUrgent(FrameType type) {
  return type != FrameType::kAnnounce && type != FrameType::kGrant && type != FrameType::kCredit;
}

}  // namespace

Outbox::Frame& Outbox::AddFrame(const FrameHeader& header) {
  Frame& frame = prompt_.emplace_back();
  EncodeFrameHeader(header, frame.header);
  frame.payload_bytes = header.length;
  frame.is_message = header.type == FrameType::kMessage;
  urgent_ |= IsUrgent(header.type);
  return frame;
}

void Outbox::AddOwned(FrameType type, std::span<const std::byte> payload, std::span<const std::byte> code) {
  const size_t length = payload.size() + code.size();
  Frame& frame = AddFrame({.type = type, .length = static_cast<uint32_t>(length), .total = length});
  frame.owned.reserve(length);
  frame.owned.assign(payload.begin(), payload.end());
  frame.owned.insert(frame.owned.end(), code.begin(), code.end());
}

void Outbox::AddMessage(std::span<const std::byte> message, std::span<const std::byte> code) {
  AddOwned(FrameType::kMessage, message, code);
}

void Outbox::AddFail(std::span<const std::byte> reason, std::span<const std::byte> code) {
  AddOwned(FrameType::kFail, reason, code);
}

void Outbox::AddGrant(Lane lane, uint64_t total) {
  AddFrame({.type = FrameType::kGrant, .lane = lane, .total = total});
}

void Outbox::AddCredit(uint64_t bytes) { AddFrame({.type = FrameType::kCredit, .total = bytes}); }

void Outbox::AddBye() { AddFrame({.type = FrameType::kBye}); }

void Outbox::AddSend(Lane lane, std::vector<iovec> data, Completion done) {
  auto op = std::make_shared<SendOp>();
  op->data = IovecCursor(std::move(data));
  op->total = op->unwritten = op->data.left();
  op->done = std::move(done);
  const size_t total = op->total;
  const bool small = total <= kEagerBytes;
  if (small && EagerCost(total) <= eager_left_) {
    eager_left_ -= EagerCost(total);
    AddFrame({.type = FrameType::kEager, .length = static_cast<uint32_t>(total), .lane = lane, .total = total}).op =
        std::move(op);
    return;
  }
  AddFrame({.type = FrameType::kAnnounce, .lane = lane, .total = total});
  const Key key{lane, small};
  BulkLane& bulk = bulk_[key];
  bulk.ops.push_back(std::move(op));
  if (bulk.early_grants.empty()) return;
  const uint64_t granted = bulk.early_grants.front();
  bulk.early_grants.pop_front();
  --early_grants_;
  status_ = Grant(key, bulk, granted);
}

Status Outbox::OnGrant(Lane lane, uint64_t total) {
  const Key key{lane, total <= kEagerBytes};
  const auto found = bulk_.find(key);
  if (found != bulk_.end() && found->second.granted < found->second.ops.size()) return Grant(key, found->second, total);
  if (early_grants_ >= kMostEarlyGrants) return Fail(Code::kInternal, "the peer asks for more than anybody sends");
  ++early_grants_;
  bulk_[key].early_grants.push_back(total);
  return {};
}

Status Outbox::Grant(const Key& key, BulkLane& lane, uint64_t total) {
  const size_t mine = lane.ops[lane.granted]->total;
  if (mine != total) {
    return Fail(Code::kInternal, "sizes differ on lane {}: {} bytes are sent, {} are received", key.lane, mine, total);
  }
  ++lane.granted;
  QueueIfReady(key, lane);
  return {};
}

void Outbox::QueueIfReady(const Key& key, BulkLane& lane) {
  if (lane.granted == 0 || lane.queued) return;
  lane.queued = true;
  turns_.push_back(key);
}

Status Outbox::OnCredit(uint64_t bytes) {
  if (bytes > kEagerWindow - eager_left_) return Fail(Code::kInternal, "the peer gave back more window than it had");
  eager_left_ += bytes;
  return {};
}

std::span<const iovec> Outbox::Next() {
  if (batch_.empty()) BuildBatch();
  return std::span<const iovec>(pieces_).subspan(first_piece_);
}

void Outbox::BuildBatch() {
  pieces_.clear();
  first_piece_ = 0;
  front_written_ = 0;
  size_t bytes = 0;
  while (!prompt_.empty() && bytes < kBatchBytes && batch_.size() < kBatchFrames) {
    bytes += prompt_.front().size();
    AppendToBatch(std::move(prompt_.front()));
    prompt_.pop_front();
  }
  if (prompt_.empty()) urgent_ = false;
  if (!turns_.empty()) AddBulkFrame();
}

void Outbox::AddBulkFrame() {
  const Key key = turns_.front();
  turns_.pop_front();
  const auto found = bulk_.find(key);
  BulkLane& lane = found->second;
  lane.queued = false;
  Frame frame;
  frame.op = lane.ops.front();
  frame.payload_bytes = frame.op->data.View(kMaxDataBytes, kBulkPieces, nullptr);
  EncodeFrameHeader({.type = FrameType::kData,
                     .length = static_cast<uint32_t>(frame.payload_bytes),
                     .lane = key.lane,
                     .total = frame.op->total},
                    frame.header);
  if (frame.payload_bytes == frame.op->data.left()) {
    lane.ops.pop_front();
    --lane.granted;
  }
  AppendToBatch(std::move(frame));
  QueueIfReady(key, lane);
  if (lane.ops.empty() && lane.early_grants.empty()) bulk_.erase(found);
}

void Outbox::AppendToBatch(Frame moved) {
  Frame& frame = batch_.emplace_back(std::move(moved));
  if (frame.header_bytes > 0) pieces_.push_back({frame.header.data(), frame.header_bytes});
  if (frame.payload_bytes == 0) return;
  if (frame.op == nullptr) {
    pieces_.push_back({frame.owned.data(), frame.payload_bytes});
    return;
  }
  frame.op->data.View(frame.payload_bytes, std::numeric_limits<size_t>::max(), &pieces_);
  frame.op->data.Advance(frame.payload_bytes);
}

void Outbox::Wrote(size_t bytes, DueCalls* due) {
  size_t rest = bytes;
  while (rest > 0) {
    iovec& piece = pieces_[first_piece_];
    const size_t length = std::min(piece.iov_len, rest);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + length;
    piece.iov_len -= length;
    rest -= length;
    if (piece.iov_len == 0) ++first_piece_;
  }
  front_written_ += bytes;
  while (!batch_.empty() && front_written_ >= batch_.front().size()) {
    Frame& frame = batch_.front();
    front_written_ -= frame.size();
    if (frame.op != nullptr) {
      frame.op->unwritten -= frame.payload_bytes;
      if (frame.op->unwritten == 0) due->push_back(DueDone(std::move(frame.op->done), {}));
    }
    batch_.pop_front();
  }
  if (batch_.empty()) {
    pieces_.clear();
    first_piece_ = 0;
  }
}

void Outbox::AbortSends(const Error& error, DueCalls* due) {
  const auto abort = [&](SendOp& op) {
    // An op can have frames in the batch and wait in its lane too: its completion is there for the first to come.
    if (op.done) due->push_back(DueDone(std::exchange(op.done, nullptr), Fail(error)));
  };
  std::deque<Frame> kept;
  for (size_t i = 0; i < batch_.size(); ++i) {
    Frame& frame = batch_[i];
    const bool cut = i == 0 && front_written_ > 0;
    if (cut) {
      Frame rest;
      rest.header_bytes = 0;
      rest.payload_bytes = frame.size() - front_written_;
      for (size_t p = first_piece_; rest.owned.size() < rest.payload_bytes; ++p) {
        const auto* begin = static_cast<const std::byte*>(pieces_[p].iov_base);
        rest.owned.insert(rest.owned.end(), begin, begin + pieces_[p].iov_len);
      }
      kept.push_back(std::move(rest));
    } else if (frame.is_message) {
      kept.push_back(std::move(frame));
    }
    if (frame.op != nullptr) abort(*frame.op);
  }
  for (Frame& frame : prompt_) {
    if (frame.op != nullptr) abort(*frame.op);
    if (frame.is_message) kept.push_back(std::move(frame));
  }
  for (auto& [key, lane] : bulk_) {
    for (const auto& op : lane.ops) abort(*op);
  }
  bulk_.clear();
  turns_.clear();
  batch_.clear();
  pieces_.clear();
  first_piece_ = 0;
  front_written_ = 0;
  prompt_ = std::move(kept);
  urgent_ = !prompt_.empty();
}

}  // namespace hvd::transport
