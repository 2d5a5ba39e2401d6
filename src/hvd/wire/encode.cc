// SPDX-License-Identifier: Apache-2.0
#include <flatbuffers/flatbuffers.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hvd/base/utf8.h"
#include "hvd/wire/control.h"
#include "hvd/wire/control_generated.h"
#include "hvd/wire/hot_frames.h"

namespace hvd::wire {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

struct Encoded {
  fbs::Body type;
  Offset<void> body;
};

Offset<flatbuffers::String> String(FlatBufferBuilder& builder, std::string_view text) {
  return builder.CreateString(text.data(), text.size());
}

Offset<fbs::Signature> Put(FlatBufferBuilder& builder, const Signature& s) {
  const auto shape = builder.CreateVector(s.shape);
  Offset<flatbuffers::Vector<int64_t>> numbers;
  if (!s.numbers.empty()) numbers = builder.CreateVector(s.numbers);
  return fbs::CreateSignature(builder, static_cast<int>(s.op), static_cast<int>(s.dtype), static_cast<int>(s.reduce_op),
                              static_cast<int>(s.device), s.root, s.prescale, s.postscale, shape, numbers);
}

Offset<fbs::Plan> Put(FlatBufferBuilder& builder, const Plan& plan) {
  const auto name = String(builder, plan.name);
  const auto signature = Put(builder, plan.signature);
  return fbs::CreatePlan(builder, plan.uid, name, signature, plan.cached);
}

Offset<fbs::Execution> Put(FlatBufferBuilder& builder, const Execution& execution) {
  Offset<flatbuffers::Vector<int64_t>> dims;
  if (!execution.first_dims.empty()) dims = builder.CreateVector(execution.first_dims);
  return fbs::CreateExecution(builder, execution.uid, dims);
}

// Only the fields of the entry's kind travel.
Offset<fbs::LogEntry> Put(FlatBufferBuilder& builder, const LogEntry& entry) {
  const int kind = static_cast<int>(entry.kind);
  switch (entry.kind) {
    case LogEntry::Kind::kDefine:
      return fbs::CreateLogEntry(builder, kind, Put(builder, entry.plan));
    case LogEntry::Kind::kExecute: {
      std::vector<Offset<fbs::Execution>> executions;
      executions.reserve(entry.executions.size());
      for (const Execution& execution : entry.executions) executions.push_back(Put(builder, execution));
      return fbs::CreateLogEntry(builder, kind, 0, builder.CreateVector(executions));
    }
    case LogEntry::Kind::kForget:
    case LogEntry::Kind::kResume:
    case LogEntry::Kind::kJoined:
      return fbs::CreateLogEntry(builder, kind, 0, 0, entry.uid);
    case LogEntry::Kind::kTune: {
      const Tuning& t = entry.tuning;
      const auto tuning = fbs::CreateTuning(builder, t.chunk_percent, t.eager_bytes, t.spin_us);
      return fbs::CreateLogEntry(builder, kind, 0, 0, entry.uid, 0, 0, tuning);
    }
    case LogEntry::Kind::kError:
      break;
  }
  const auto name = String(builder, entry.name);
  const auto text = String(builder, Cut(entry.error.message, kMaxTextBytes));
  const auto error = fbs::CreateError(builder, static_cast<int>(entry.error.code), text, entry.error.rank);
  return fbs::CreateLogEntry(builder, kind, 0, 0, 0, name, error);
}

Offset<fbs::Waiting> Put(FlatBufferBuilder& builder, const Waiting& waiting) {
  const auto name = String(builder, waiting.request.name);
  const auto signature = Put(builder, waiting.request.signature);
  const auto missing = builder.CreateVector(waiting.missing);
  return fbs::CreateWaiting(builder, waiting.set, name, signature, static_cast<int>(waiting.stage), waiting.waited_ms,
                            missing, waiting.missing_count, waiting.before);
}

Offset<fbs::Last> Put(FlatBufferBuilder& builder, const Last& last) {
  const auto name = String(builder, last.name);
  return fbs::CreateLast(builder, last.set, name, static_cast<int>(last.op), last.ago_ms);
}

// One overload per kind of message.
class Encoder {
 public:
  explicit Encoder(FlatBufferBuilder& builder) : builder_(builder) {}

  Encoded operator()(const RequestMessage& m) {
    const auto name = String(builder_, m.request.name);
    const auto signature = Put(builder_, m.request.signature);
    return {fbs::Body::Request, fbs::CreateRequest(builder_, m.set, name, signature).Union()};
  }
  Encoded operator()(const LogMessage& m) { return Log(m.set, m.first_position, m.entries); }
  Encoded operator()(const Goodbye& m) {
    const auto text = String(builder_, Cut(m.text, kMaxTextBytes));
    return {fbs::Body::Goodbye, fbs::CreateGoodbye(builder_, m.rank, m.clean, text).Union()};
  }
  Encoded operator()(const Ping& m) { return {fbs::Body::Ping, fbs::CreatePing(builder_, m.number).Union()}; }
  Encoded operator()(const Pong& m) {
    return {fbs::Body::Pong, fbs::CreatePong(builder_, m.number, m.wall_ns).Union()};
  }
  Encoded operator()(const Revoke& m) {
    const auto text = String(builder_, Cut(m.text, kMaxTextBytes));
    return {fbs::Body::Revoke, fbs::CreateRevoke(builder_, m.kind, m.rank, m.detail, m.pid, text).Union()};
  }
  Encoded operator()(const Stalled& m) {
    return {fbs::Body::Stalled, fbs::CreateStalled(builder_, m.waited_ms).Union()};
  }
  Encoded operator()(const StatusQuery& m) {
    return {fbs::Body::StatusQuery, fbs::CreateStatusQuery(builder_, m.number, m.dump).Union()};
  }
  Encoded operator()(const StatusReply& m) {
    std::vector<Offset<fbs::Waiting>> waiting;
    waiting.reserve(m.waiting.size());
    for (const Waiting& one : m.waiting) waiting.push_back(Put(builder_, one));
    const auto submitted = Put(builder_, m.submitted);
    const auto finished = Put(builder_, m.finished);
    const auto vector = builder_.CreateVector(waiting);
    return {fbs::Body::StatusReply,
            fbs::CreateStatusReply(builder_, m.number, m.blocked, submitted, finished, vector, m.more).Union()};
  }
  Encoded operator()(const StreamEnd& m) {
    return {fbs::Body::StreamEnd, fbs::CreateStreamEnd(builder_, m.set, m.epoch, m.first, m.head).Union()};
  }
  // These have frames of their own.
  Encoded operator()(const ReadyMessage&) { return {}; }
  Encoded operator()(const MarkMessage&) { return {}; }

  Encoded Log(int32_t set, uint64_t first_position, std::span<const LogEntry> entries) {
    std::vector<Offset<fbs::LogEntry>> offsets;
    offsets.reserve(entries.size());
    for (const LogEntry& entry : entries) offsets.push_back(Put(builder_, entry));
    const auto vector = builder_.CreateVector(offsets);
    return {fbs::Body::Log, fbs::CreateLog(builder_, set, first_position, vector).Union()};
  }

 private:
  FlatBufferBuilder& builder_;
};

Bytes Finish(FlatBufferBuilder& builder, const Encoded& encoded) {
  fbs::FinishControlBuffer(builder, fbs::CreateControl(builder, encoded.type, encoded.body));
  const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
  return Bytes(data, data + builder.GetSize());
}

// At least what the entry adds to a message: tables with their vtables and padding, strings, vectors.
size_t UpperBound(const LogEntry& entry) {
  size_t bytes = 320 + entry.plan.name.size() + 8 * entry.plan.signature.shape.size() +
                 8 * entry.plan.signature.numbers.size() + entry.name.size() +
                 std::min(entry.error.message.size(), kMaxTextBytes);
  for (const Execution& execution : entry.executions) bytes += 48 + 8 * execution.first_dims.size();
  return bytes;
}

}  // namespace

std::array<std::byte, kReadyBytes> EncodeReady(const ReadyMessage& ready) {
  const ReadyFrame frame{kReadyMagic, ready.set, ready.uid, ready.first_dim, 0};
  std::array<std::byte, kReadyBytes> bytes;
  std::memcpy(bytes.data(), &frame, sizeof(frame));
  return bytes;
}

void EncodeMarks(const MarkMessage& message, Bytes* bytes) {
  const MarkHead head{kMarkMagic, message.set, message.epoch, message.position, message.marks.size()};
  size_t size = sizeof(head) + message.marks.size() * sizeof(MarkFrame);
  for (const Mark& mark : message.marks) size += mark.data.size();
  bytes->resize(size);
  std::memcpy(bytes->data(), &head, sizeof(head));
  std::byte* to = bytes->data() + sizeof(head);
  std::byte* data = to + message.marks.size() * sizeof(MarkFrame);
  for (const Mark& mark : message.marks) {
    const MarkFrame frame{mark.uid, mark.first_dim, mark.data.size()};
    std::memcpy(to, &frame, sizeof(frame));
    to += sizeof(frame);
    if (!mark.data.empty()) std::memcpy(data, mark.data.data(), mark.data.size());
    data += mark.data.size();
  }
}

Bytes Encode(const ControlMessage& message) {
  if (const auto* ready = std::get_if<ReadyMessage>(&message)) {
    const auto frame = EncodeReady(*ready);
    return Bytes(frame.begin(), frame.end());
  }
  if (const auto* marks = std::get_if<MarkMessage>(&message)) {
    Bytes bytes;
    EncodeMarks(*marks, &bytes);
    return bytes;
  }
  FlatBufferBuilder builder(256);
  return Finish(builder, std::visit(Encoder(builder), message));
}

std::vector<Bytes> EncodeLog(const LogMessage& log, size_t max_bytes) {
  constexpr size_t kEnvelope = 128;
  const std::span<const LogEntry> entries(log.entries);
  std::vector<Bytes> messages;
  for (size_t begin = 0; begin < entries.size();) {
    size_t bytes = kEnvelope;
    size_t end = begin;
    do {
      bytes += UpperBound(entries[end++]);
    } while (end < entries.size() && bytes + UpperBound(entries[end]) <= max_bytes);
    FlatBufferBuilder builder(bytes);
    Encoder encoder(builder);
    messages.push_back(
        Finish(builder, encoder.Log(log.set, log.first_position + begin, entries.subspan(begin, end - begin))));
    begin = end;
  }
  return messages;
}

}  // namespace hvd::wire
