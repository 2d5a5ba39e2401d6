// SPDX-License-Identifier: Apache-2.0
#include "hvd/transport/framed_pair_inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hvd/kernel/kernel.h"

namespace hvd::transport {
namespace {

constexpr size_t kTargetPieces = 256;
constexpr size_t kReturnWindowAt = kEagerWindow / 8;
// Sends that a peer may begin before anybody here asks for them. Far more than a job has operations in flight.
constexpr size_t kMostUnclaimed = 1 << 20;

}  // namespace

Result<std::shared_ptr<RecvOp>> Inbox::Post(Lane id, std::vector<iovec> into, PartialArrival on_bytes,
                                            Completion done) {
  auto op = std::make_shared<RecvOp>();
  op->into = IovecCursor(std::move(into));
  op->total = op->into.left();
  op->on_bytes = std::move(on_bytes);
  op->done = std::move(done);
  RecvLane& lane = lanes_[id];
  // Large data is granted before it is announced: a Send that comes later need not wait for us.
  if (op->total > kEagerBytes) outbox_->AddGrant(id, op->total);
  if (lane.arrivals.empty()) {
    lane.posted.push_back(std::move(op));
    return nullptr;
  }
  const std::shared_ptr<Arrival> arrival = std::move(lane.arrivals.front());
  lane.arrivals.pop_front();
  --unclaimed_;
  if (arrival->eager) unclaimed_cost_ -= EagerCost(arrival->total);
  if (auto same = CheckSizes(id, arrival->total, op->total); !same) {
    lane.posted.push_back(std::move(op));  // so that it fails with the rest
    return Fail(std::move(same).error());
  }
  Meet(id, lane, op, arrival);
  const bool bytes_are_there = arrival->eager && (arrival->filled > 0 || arrival->total == 0);
  EraseIfIdle(id);
  return bytes_are_there ? std::move(op) : nullptr;
}

void Inbox::Meet(Lane id, RecvLane& lane, const std::shared_ptr<RecvOp>& op, const std::shared_ptr<Arrival>& arrival) {
  if (!arrival->eager) {
    const bool small = op->total <= kEagerBytes;
    if (small) outbox_->AddGrant(id, op->total);
    lane.expected[small].push_back(op);
    return;
  }
  op->into.Fill(std::span(arrival->data).first(arrival->filled));
  ReturnWindow(arrival->total);
  if (arrival_ == arrival) {  // its frame is still coming in; the rest goes straight to the user
    arrival_ = nullptr;
    op_ = op;
  }
}

void Inbox::ReturnWindow(size_t total) {
  window_to_return_ += EagerCost(total);
  if (window_to_return_ < kReturnWindowAt) return;
  outbox_->AddCredit(window_to_return_);
  window_to_return_ = 0;
}

Status Inbox::CheckSizes(Lane lane, size_t sent, size_t received) const {
  if (sent == received) return {};
  return Fail(Code::kInternal, "sizes differ on lane {}: {} bytes are sent, {} are received", lane, sent, received);
}

void Inbox::EraseIfIdle(Lane id) {
  const auto found = lanes_.find(id);
  if (found != lanes_.end() && found->second.idle()) lanes_.erase(found);
}

std::span<const iovec> Inbox::Targets() {
  targets_.clear();
  if (in_frame_ && frame_left_ > 0) {
    if (op_ != nullptr) {
      if (op_->into.View(frame_left_, kTargetPieces, &targets_) < frame_left_) return targets_;
    } else {
      std::vector<std::byte>& buffer = arrival_ != nullptr ? arrival_->data : plain_;
      targets_.push_back({buffer.data() + (buffer.size() - frame_left_), frame_left_});
    }
  }
  // Next() leaves at most a part of a header here, and nothing while a payload is incomplete.
  targets_.push_back({staging_.data() + staged_end_, staging_.size() - staged_end_});
  return targets_;
}

void Inbox::Filled(size_t bytes) {
  if (in_frame_) {
    const size_t direct = std::min(bytes, frame_left_);
    if (op_ != nullptr) {
      op_->into.Advance(direct);
      progress_ |= direct > 0;
    } else if (arrival_ != nullptr) {
      arrival_->filled += direct;
    }
    frame_left_ -= direct;
    bytes -= direct;
  }
  staged_end_ += bytes;
}

Result<InboxEvent> Inbox::Next() {
  while (true) {
    if (in_frame_) {
      TakeStaged();
      if (frame_left_ == 0) {
        InboxEvent event = EndFrame();
        if (event.kind != InboxEvent::kNothing) return event;
        continue;
      }
      if (std::exchange(progress_, false)) return InboxEvent{.kind = InboxEvent::kBytes, .op = op_};
      return InboxEvent{};
    }
    const size_t staged = staged_end_ - staged_begin_;
    if (staged < kFrameHeaderBytes) {
      std::memmove(staging_.data(), staging_.data() + staged_begin_, staged);
      staged_begin_ = 0;
      staged_end_ = staged;
      return InboxEvent{};
    }
    const std::span<const std::byte, kFrameHeaderBytes> bytes(staging_.data() + staged_begin_, kFrameHeaderBytes);
    HVD_ASSIGN_OR_RETURN(const FrameHeader header, DecodeFrameHeader(bytes));
    staged_begin_ += kFrameHeaderBytes;
    HVD_RETURN_IF_ERROR(BeginFrame(header));
  }
}

Status Inbox::BeginFrame(const FrameHeader& header) {
  in_frame_ = true;
  frame_ = header;
  frame_left_ = header.length;
  op_ = nullptr;
  arrival_ = nullptr;
  progress_ = false;
  switch (header.type) {
    case FrameType::kMessage:
    case FrameType::kFail:
      // One that lies in the staging area as a whole is handed out from there: the bytes stay until more are read.
      plain_.clear();
      staged_payload_ = staging_.data() + staged_begin_;
      if (staged_end_ - staged_begin_ < header.length) plain_.resize(header.length);
      return {};
    case FrameType::kEager:
    case FrameType::kAnnounce:
      return BeginArrival(header);
    case FrameType::kData:
      return BeginData(header);
    case FrameType::kGrant:
    case FrameType::kCredit:
    case FrameType::kBye:
      return {};
  }
  return {};
}

Status Inbox::BeginArrival(const FrameHeader& header) {
  RecvLane& lane = lanes_[header.lane];
  auto arrival = std::make_shared<Arrival>(Arrival{.total = header.total, .eager = header.type == FrameType::kEager});
  if (lane.posted.empty()) {
    const size_t cost = arrival->eager ? EagerCost(header.total) : 0;
    if (unclaimed_ >= kMostUnclaimed || cost > kEagerWindow - unclaimed_cost_) {
      return Fail(Code::kInternal, "the peer sends more than its window before anybody asks for it");
    }
    ++unclaimed_;
    unclaimed_cost_ += cost;
    if (arrival->eager) arrival->data.resize(header.length);
    arrival_ = arrival;
    lane.arrivals.push_back(std::move(arrival));
    return {};
  }
  const std::shared_ptr<RecvOp> op = lane.posted.front();
  HVD_RETURN_IF_ERROR(CheckSizes(header.lane, header.total, op->total));
  lane.posted.pop_front();
  arrival_ = arrival;
  Meet(header.lane, lane, op, arrival);
  EraseIfIdle(header.lane);
  return {};
}

Status Inbox::BeginData(const FrameHeader& header) {
  const auto found = lanes_.find(header.lane);
  const size_t small = header.total <= kEagerBytes;
  if (found == lanes_.end() || found->second.expected[small].empty()) {
    return Fail(Code::kInternal, "data on lane {} that nobody asked for", header.lane);
  }
  op_ = found->second.expected[small].front();
  if (header.total != op_->total || header.length > op_->into.left()) {
    op_ = nullptr;
    return Fail(Code::kInternal, "more data on lane {} than announced", header.lane);
  }
  return {};
}

void Inbox::TakeStaged() {
  const size_t staged = staged_end_ - staged_begin_;
  const std::span<const std::byte> bytes(staging_.data() + staged_begin_, std::min(staged, frame_left_));
  if (bytes.empty()) return;
  if (op_ != nullptr) {
    op_->into.Fill(bytes);
    progress_ = true;
  } else if (arrival_ != nullptr) {
    kernel::Copy(arrival_->data.data() + arrival_->filled, bytes.data(), bytes.size());
    arrival_->filled += bytes.size();
  } else if (!plain_.empty()) {
    kernel::Copy(plain_.data() + (plain_.size() - frame_left_), bytes.data(), bytes.size());
  }
  frame_left_ -= bytes.size();
  staged_begin_ += bytes.size();
  if (staged_begin_ == staged_end_) staged_begin_ = staged_end_ = 0;
}

InboxEvent Inbox::EndFrame() {
  in_frame_ = false;
  arrival_ = nullptr;
  progress_ = false;
  const std::shared_ptr<RecvOp> op = std::exchange(op_, nullptr);
  switch (frame_.type) {
    case FrameType::kMessage:
    case FrameType::kFail: {
      const std::byte* payload = plain_.empty() ? staged_payload_ : plain_.data();
      return {.kind = frame_.type == FrameType::kMessage ? InboxEvent::kMessage : InboxEvent::kFail,
              .payload = std::span(payload, frame_.length)};
    }
    case FrameType::kGrant:
      return {.kind = InboxEvent::kGrant, .lane = frame_.lane, .total = frame_.total};
    case FrameType::kCredit:
      return {.kind = InboxEvent::kCredit, .total = frame_.total};
    case FrameType::kBye:
      return {.kind = InboxEvent::kBye};
    case FrameType::kAnnounce:
      return {};
    case FrameType::kEager:
      break;
    case FrameType::kData:
      if (op->into.left() == 0) {
        lanes_[frame_.lane].expected[op->total <= kEagerBytes].pop_front();
        EraseIfIdle(frame_.lane);
      }
      break;
  }
  if (op == nullptr) return {};
  return {.kind = InboxEvent::kBytes, .op = op};
}

bool Inbox::HasForLate(Lane id, size_t total) {
  const auto found = lanes_.find(id);
  if (found == lanes_.end() || found->second.arrivals.empty()) return false;
  const Arrival& next = *found->second.arrivals.front();
  if (next.eager && next.filled == next.total && next.total == total) return true;
  found->second.arrivals.pop_front();
  return false;
}

void Inbox::AbortRecvs(const Error& error, bool keep_arrivals, DueCalls* due) {
  const auto abort = [&](RecvOp& op) {
    if (op.done) due->push_back(DueDone(std::exchange(op.done, nullptr), Fail(error)));
  };
  if (op_ != nullptr) abort(*op_);
  for (auto& [id, lane] : lanes_) {
    for (const auto& list : lane.expected) {
      for (const auto& op : list) abort(*op);
    }
    for (const auto& op : lane.posted) abort(*op);
    lane.posted.clear();
    for (auto& list : lane.expected) list.clear();
  }
  if (!keep_arrivals) lanes_.clear();
  op_ = nullptr;
  arrival_ = nullptr;
  in_frame_ = false;
}

}  // namespace hvd::transport
