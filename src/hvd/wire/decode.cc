// SPDX-License-Identifier: Apache-2.0
#include <flatbuffers/flatbuffers.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "hvd/wire/control.h"
#include "hvd/wire/control_generated.h"
#include "hvd/wire/hot_frames.h"
#include "hvd/wire/limit_check.h"

namespace hvd::wire {
namespace {

constexpr flatbuffers::uoffset_t kMaxDepth = 8;  // Control > Log > LogEntry > Plan > Signature, and vectors
constexpr flatbuffers::uoffset_t kMaxTables = kMaxControlBytes / 8;

// Reads one verified message. The verifier proves that every offset stays inside; it does not forbid that many offsets
// share one target, by which a small message could unfold to gigabytes. Therefore everything copied is charged to a
// budget of as many bytes as the message has: an honest message never exceeds it.
class Decoder {
 public:
  explicit Decoder(size_t budget) : budget_(budget) {}

  Result<ControlMessage> Message(const fbs::Control& control) {
    // The verifier takes a message that names a kind and has no body.
    if (control.body() == nullptr) return Bad("no body");
    switch (control.body_type()) {
      case fbs::Body::Request:
        return RequestBody(*control.body_as_Request());
      case fbs::Body::Log:
        return LogBody(*control.body_as_Log());
      case fbs::Body::Goodbye:
        return GoodbyeBody(*control.body_as_Goodbye());
      case fbs::Body::Ping:
        return ControlMessage(Ping{control.body_as_Ping()->number()});
      case fbs::Body::Pong:
        return ControlMessage(Pong{control.body_as_Pong()->number(), control.body_as_Pong()->wall_ns()});
      case fbs::Body::Revoke:
        return RevokeBody(*control.body_as_Revoke());
      case fbs::Body::Stalled:
        return StalledBody(*control.body_as_Stalled());
      case fbs::Body::StatusQuery:
        return ControlMessage(
            StatusQuery{control.body_as_StatusQuery()->number(), control.body_as_StatusQuery()->dump()});
      case fbs::Body::StatusReply:
        return StatusReplyBody(*control.body_as_StatusReply());
      case fbs::Body::StreamEnd: {
        const fbs::StreamEnd& end = *control.body_as_StreamEnd();
        return ControlMessage(StreamEnd{end.set(), end.epoch(), end.first(), end.head()});
      }
      case fbs::Body::NONE:
        break;
    }
    return Bad("unknown kind");
  }

 private:
  static tl::unexpected<Error> Bad(std::string_view why) {
    return Fail(Code::kInvalidArgument, "malformed control message: {}", why);
  }

  Status Charge(size_t bytes) {
    if (bytes > budget_) return Bad("more content than bytes");
    budget_ -= bytes;
    return {};
  }

  Result<std::string> Text(const flatbuffers::String* text, size_t limit) {
    if (text == nullptr) return std::string();
    if (text->size() > limit) return Bad("a text is too long");
    HVD_RETURN_IF_ERROR(Charge(text->size()));
    return std::string(text->data(), text->size());
  }

  Result<std::vector<int64_t>> Numbers(const flatbuffers::Vector<int64_t>* numbers, size_t limit) {
    if (numbers == nullptr) return std::vector<int64_t>();
    if (numbers->size() > limit) return Bad("a list of numbers is too long");
    HVD_RETURN_IF_ERROR(Charge(numbers->size() * sizeof(int64_t)));
    // Not by element: the verifier does not promise that they are aligned.
    std::vector<int64_t> out(numbers->size());
    if (!out.empty()) std::memcpy(out.data(), numbers->Data(), out.size() * sizeof(int64_t));
    return out;
  }

  Result<Signature> ReadSignature(const fbs::Signature* in) {
    if (in == nullptr) return Bad("no signature");
    Signature out;
    out.op = static_cast<OpKind>(in->op());
    out.dtype = static_cast<DType>(in->dtype());
    out.reduce_op = static_cast<ReduceOp>(in->reduce_op());
    out.device = static_cast<Device>(in->device());
    out.root = in->root();
    out.prescale = in->prescale();
    out.postscale = in->postscale();
    HVD_ASSIGN_OR_RETURN(out.shape, Numbers(in->shape(), kMaxDims));
    HVD_ASSIGN_OR_RETURN(out.numbers, Numbers(in->numbers(), kMaxMembers));
    if (auto status = CheckSignature(out); !status) return Bad(status.error().message);
    return out;
  }

  Result<Plan> ReadPlan(const fbs::Plan* in) {
    if (in == nullptr) return Bad("no plan");
    Plan out;
    out.uid = in->uid();
    out.cached = in->cached();
    HVD_ASSIGN_OR_RETURN(out.name, Text(in->name(), kMaxNameBytes));
    HVD_ASSIGN_OR_RETURN(out.signature, ReadSignature(in->signature()));
    return out;
  }

  Result<Execution> ReadExecution(const fbs::Execution& in) {
    HVD_RETURN_IF_ERROR(Charge(sizeof(uint64_t)));
    Execution out;
    out.uid = in.uid();
    HVD_ASSIGN_OR_RETURN(out.first_dims, Numbers(in.first_dims(), kMaxMembers));
    for (const int64_t dim : out.first_dims) {
      if (dim < 0) return Bad("a first dimension is negative");
    }
    return out;
  }

  Status ReadExecutions(const fbs::LogEntry& in, LogEntry& out) {
    if (in.executions() == nullptr || in.executions()->size() == 0) return Bad("nothing to execute");
    if (in.executions()->size() > kMaxExecutions) return Bad("too many executions");
    out.executions.reserve(in.executions()->size());
    for (const fbs::Execution* execution : *in.executions()) {
      HVD_ASSIGN_OR_RETURN(Execution one, ReadExecution(*execution));
      out.executions.push_back(std::move(one));
    }
    return {};
  }

  Status ReadError(const fbs::LogEntry& in, LogEntry& out) {
    HVD_ASSIGN_OR_RETURN(out.name, Text(in.name(), kMaxNameBytes));
    if (in.error() == nullptr) return Bad("no error");
    const int code = in.error()->code();
    if (code <= static_cast<int>(Code::kOk) || code > static_cast<int>(Code::kInternal)) {
      return Bad("unknown error code");
    }
    out.error.code = static_cast<Code>(code);
    out.error.rank = in.error()->rank();
    HVD_ASSIGN_OR_RETURN(out.error.message, Text(in.error()->message(), kMaxTextBytes));
    return {};
  }

  Status ReadTuning(const fbs::LogEntry& in, LogEntry& out) {
    if (in.tuning() == nullptr) return Bad("no tuning");
    out.uid = in.uid();
    out.tuning = {in.tuning()->chunk_percent(), in.tuning()->eager_bytes(), in.tuning()->spin_us()};
    if (auto status = CheckTuning(out.tuning); !status) return Bad(status.error().message);
    return {};
  }

  Status ReadEntry(const fbs::LogEntry& in, LogEntry& out) {
    HVD_RETURN_IF_ERROR(Charge(sizeof(uint64_t)));
    out.kind = static_cast<LogEntry::Kind>(in.kind());
    switch (out.kind) {
      case LogEntry::Kind::kDefine: {
        HVD_ASSIGN_OR_RETURN(out.plan, ReadPlan(in.plan()));
        return {};
      }
      case LogEntry::Kind::kExecute:
        return ReadExecutions(in, out);
      case LogEntry::Kind::kForget:
      case LogEntry::Kind::kResume:
      case LogEntry::Kind::kJoined:
        out.uid = in.uid();
        return {};
      case LogEntry::Kind::kError:
        return ReadError(in, out);
      case LogEntry::Kind::kTune:
        return ReadTuning(in, out);
    }
    return Bad("unknown kind of log entry");
  }

  Result<ControlMessage> RequestBody(const fbs::Request& in) {
    RequestMessage out;
    out.set = in.set();
    HVD_ASSIGN_OR_RETURN(out.request.name, Text(in.name(), kMaxNameBytes));
    HVD_ASSIGN_OR_RETURN(out.request.signature, ReadSignature(in.signature()));
    return ControlMessage(std::move(out));
  }

  Result<ControlMessage> LogBody(const fbs::Log& in) {
    LogMessage out;
    out.set = in.set();
    out.first_position = in.first_position();
    if (in.entries() != nullptr) {
      // Not reserved: a LogEntry in memory is much larger than the offset that claims one.
      for (const fbs::LogEntry* entry : *in.entries()) {
        HVD_RETURN_IF_ERROR(ReadEntry(*entry, out.entries.emplace_back()));
      }
    }
    return ControlMessage(std::move(out));
  }

  Result<ControlMessage> GoodbyeBody(const fbs::Goodbye& in) {
    Goodbye out{in.rank(), in.clean(), {}};
    HVD_ASSIGN_OR_RETURN(out.text, Text(in.text(), kMaxTextBytes));
    return ControlMessage(std::move(out));
  }

  Result<ControlMessage> RevokeBody(const fbs::Revoke& in) {
    Revoke out{in.kind(), in.rank(), in.detail(), in.pid(), {}};
    if (out.kind < 0 || out.kind > Revoke::kMaxKind) return Bad("unknown kind of revocation");
    HVD_ASSIGN_OR_RETURN(out.text, Text(in.text(), kMaxTextBytes));
    return ControlMessage(std::move(out));
  }

  static Result<ControlMessage> StalledBody(const fbs::Stalled& in) {
    if (in.waited_ms() < 0) return Bad("a time is negative");
    return ControlMessage(Stalled{in.waited_ms()});
  }

  Status ReadWaiting(const fbs::Waiting& in, Waiting& out) {
    out.set = in.set();
    out.stage = static_cast<Waiting::Stage>(in.stage());
    out.waited_ms = in.waited_ms();
    out.missing_count = in.missing_count();
    out.before = in.before();
    if (out.stage < Waiting::Stage::kAsked || out.stage > Waiting::Stage::kHeld) return Bad("unknown stage");
    if (out.waited_ms < 0) return Bad("a time is negative");
    HVD_ASSIGN_OR_RETURN(out.request.name, Text(in.name(), StatusReply::kMaxShownName));
    HVD_ASSIGN_OR_RETURN(out.request.signature, ReadSignature(in.signature()));
    HVD_ASSIGN_OR_RETURN(out.missing, Numbers(in.missing(), StatusReply::kMaxMissing));
    if (out.missing_count < 0 || out.missing.size() > static_cast<size_t>(out.missing_count)) {
      return Bad("more ranks than counted");
    }
    return {};
  }

  Result<Last> ReadLast(const fbs::Last* in) {
    Last out;
    if (in == nullptr) return out;
    out.set = in->set();
    out.op = static_cast<OpKind>(in->op());
    out.ago_ms = in->ago_ms();
    if (!IsValid(out.op)) return Bad("unknown operation");
    HVD_ASSIGN_OR_RETURN(out.name, Text(in->name(), StatusReply::kMaxShownName));
    return out;
  }

  Result<ControlMessage> StatusReplyBody(const fbs::StatusReply& in) {
    StatusReply out;
    out.number = in.number();
    out.blocked = in.blocked();
    out.more = in.more();
    HVD_ASSIGN_OR_RETURN(out.submitted, ReadLast(in.submitted()));
    HVD_ASSIGN_OR_RETURN(out.finished, ReadLast(in.finished()));
    if (in.waiting() != nullptr) {
      if (in.waiting()->size() > StatusReply::kMaxWaiting) return Bad("too many operations");
      for (const fbs::Waiting* waiting : *in.waiting()) {
        HVD_RETURN_IF_ERROR(ReadWaiting(*waiting, out.waiting.emplace_back()));
      }
    }
    return ControlMessage(std::move(out));
  }

  size_t budget_;
};

bool IsReady(std::span<const std::byte> bytes) {
  if (bytes.size() != kReadyBytes) return false;
  uint32_t magic;
  std::memcpy(&magic, bytes.data(), sizeof(magic));
  return magic == kReadyMagic;
}

Result<ControlMessage> DecodeReady(std::span<const std::byte> bytes) {
  ReadyFrame frame;
  std::memcpy(&frame, bytes.data(), sizeof(frame));
  if (frame.first_dim < 0 || frame.reserved != 0) {
    return Fail(Code::kInvalidArgument, "malformed control message: bad ready mark");
  }
  return ControlMessage(ReadyMessage{frame.set, frame.uid, frame.first_dim});
}

bool IsMark(std::span<const std::byte> bytes) {
  uint32_t magic = 0;
  if (bytes.size() >= sizeof(magic)) std::memcpy(&magic, bytes.data(), sizeof(magic));
  return magic == kMarkMagic;
}

Result<ControlMessage> DecodeMarks(std::span<const std::byte> bytes) {
  MarkHead head{};
  if (bytes.size() >= sizeof(head)) std::memcpy(&head, bytes.data(), sizeof(head));
  const size_t most = (bytes.size() - std::min(bytes.size(), sizeof(head))) / sizeof(MarkFrame);
  if (head.count == 0 || head.count > most) {
    return Fail(Code::kInvalidArgument, "malformed control message: {} marks in {} bytes", head.count, bytes.size());
  }
  MarkMessage message{head.set, head.epoch, head.position, {}};
  message.marks.reserve(head.count);
  auto data = bytes.subspan(sizeof(head) + head.count * sizeof(MarkFrame));
  bool good = data.size() <= kMaxMarkBytes;
  for (size_t i = 0; good && i < head.count; ++i) {
    MarkFrame frame;
    std::memcpy(&frame, bytes.data() + sizeof(head) + i * sizeof(frame), sizeof(frame));
    const bool is_void = frame.uid == 0;
    good =
        frame.bytes <= data.size() && frame.first_dim >= 0 && !(is_void && (frame.first_dim != 0 || frame.bytes != 0));
    if (!good) break;
    message.marks.push_back({frame.uid, frame.first_dim, data.first(frame.bytes)});
    data = data.subspan(frame.bytes);
  }
  if (!good || !data.empty()) return Fail(Code::kInvalidArgument, "malformed control message: bad mark");
  return ControlMessage(std::move(message));
}

Result<ControlMessage> DecodeAligned(const uint8_t* data, size_t size) {
  flatbuffers::Verifier verifier(data, size, kMaxDepth, kMaxTables);
  if (!fbs::VerifyControlBuffer(verifier)) {
    return Fail(Code::kInvalidArgument, "malformed control message: {} bytes that are no FlatBuffer of ours", size);
  }
  return Decoder(size).Message(*fbs::GetControl(data));
}

}  // namespace

Result<ControlMessage> Decode(std::span<const std::byte> bytes) {
  if (IsReady(bytes)) return DecodeReady(bytes);
  if (IsMark(bytes)) return DecodeMarks(bytes);
  if (bytes.size() > kMaxControlBytes) {
    return Fail(Code::kInvalidArgument, "malformed control message: {} bytes, at most {} are allowed", bytes.size(),
                kMaxControlBytes);
  }
  if (bytes.size() < 2 * sizeof(flatbuffers::uoffset_t)) {
    return Fail(Code::kInvalidArgument, "malformed control message: only {} bytes", bytes.size());
  }
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) == 0) {
    return DecodeAligned(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  // FlatBuffers reads numbers in place; a ring or a stream hands out bytes at any address.
  std::vector<uint64_t> aligned((bytes.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  std::memcpy(aligned.data(), bytes.data(), bytes.size());
  return DecodeAligned(reinterpret_cast<const uint8_t*>(aligned.data()), bytes.size());
}

}  // namespace hvd::wire
