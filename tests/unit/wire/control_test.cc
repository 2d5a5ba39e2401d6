// SPDX-License-Identifier: Apache-2.0
#include "hvd/wire/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <limits>
#include <random>

namespace hvd::wire {
namespace {

using ::testing::HasSubstr;

std::string AnyText(size_t limit = 40) {
  auto text = *rc::gen::arbitrary<std::string>();
  if (text.size() > limit) text.resize(limit);
  return text;
}

Signature AnySignature() {
  Signature s;
  s.op = static_cast<OpKind>(*rc::gen::inRange(0, 9));
  s.dtype = static_cast<DType>(*rc::gen::inRange(0, kDTypeCount));
  s.reduce_op = static_cast<ReduceOp>(*rc::gen::inRange(0, 6));
  s.device = static_cast<Device>(*rc::gen::inRange(0, 2));
  s.root = *rc::gen::inRange(-1, 100);
  s.prescale = *rc::gen::arbitrary<double>();
  s.postscale = *rc::gen::arbitrary<double>();
  s.shape = *rc::gen::container<Shape>(rc::gen::inRange<int64_t>(0, 4));
  if (s.shape.size() > 20) s.shape.resize(20);
  s.numbers = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 1000));
  return s;
}

LogEntry AnyEntry() {
  LogEntry entry;
  entry.kind = static_cast<LogEntry::Kind>(*rc::gen::inRange(1, 8));
  switch (entry.kind) {
    case LogEntry::Kind::kDefine:
      entry.plan = {*rc::gen::arbitrary<uint64_t>(), AnyText(), AnySignature(), *rc::gen::arbitrary<bool>()};
      break;
    case LogEntry::Kind::kExecute:
      for (int i = *rc::gen::inRange(1, 5); i > 0; --i) {
        entry.executions.push_back({*rc::gen::arbitrary<uint64_t>(),
                                    *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 1000))});
      }
      break;
    case LogEntry::Kind::kForget:
    case LogEntry::Kind::kResume:
      entry.uid = *rc::gen::arbitrary<uint64_t>();
      break;
    case LogEntry::Kind::kJoined:
      entry.uid = *rc::gen::inRange<uint64_t>(0, 1000);
      break;
    case LogEntry::Kind::kTune:
      entry.uid = *rc::gen::arbitrary<uint64_t>();
      entry.tuning = {*rc::gen::inRange(1, Tuning::kMostPercent + 1), *rc::gen::inRange<int64_t>(0, 1 << 20),
                      *rc::gen::inRange<int64_t>(0, 2000)};
      break;
    case LogEntry::Kind::kError:
      entry.name = AnyText();
      entry.error = {static_cast<Code>(*rc::gen::inRange(1, 14)), AnyText(), *rc::gen::inRange(-1, 9)};
      break;
  }
  return entry;
}

Last AnyLast() {
  return {*rc::gen::arbitrary<int32_t>(), AnyText(), static_cast<OpKind>(*rc::gen::inRange(0, 9)),
          *rc::gen::inRange<int64_t>(-1, 1 << 30)};
}

Waiting AnyWaiting() {
  Waiting waiting{*rc::gen::arbitrary<int32_t>(), {AnyText(), AnySignature()}, {}, {}, {}, {}, {}};
  waiting.stage = static_cast<Waiting::Stage>(*rc::gen::inRange(0, 5));
  waiting.waited_ms = *rc::gen::inRange<int64_t>(0, 1 << 30);
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i) waiting.missing.push_back(*rc::gen::inRange(0, 100));
  waiting.missing_count = static_cast<int32_t>(waiting.missing.size()) + *rc::gen::inRange(0, 5);
  waiting.before = *rc::gen::arbitrary<bool>();
  return waiting;
}

MarkMessage AnyMarks() {
  static const std::vector<std::byte> data(100, std::byte{7});  // a message only points to it
  MarkMessage message{
      *rc::gen::arbitrary<int32_t>(), *rc::gen::arbitrary<uint64_t>(), *rc::gen::arbitrary<uint64_t>(), {}};
  for (int i = *rc::gen::inRange(1, 5); i > 0; --i) {
    Mark& mark = message.marks.emplace_back();
    mark.uid = *rc::gen::inRange<uint64_t>(0, 3);
    if (mark.uid == 0) continue;
    mark.first_dim = *rc::gen::inRange<int64_t>(0, 1 << 20);
    mark.data = std::span(data).first(*rc::gen::inRange<size_t>(0, data.size()));
  }
  return message;
}

ControlMessage AnyMessage() {
  switch (*rc::gen::inRange(0, 12)) {
    case 0:
      return RequestMessage{*rc::gen::arbitrary<int32_t>(), {AnyText(), AnySignature()}};
    case 1:
      return ReadyMessage{*rc::gen::arbitrary<int32_t>(), *rc::gen::arbitrary<uint64_t>(),
                          *rc::gen::inRange<int64_t>(0, 1 << 20)};
    case 2: {
      LogMessage log{*rc::gen::arbitrary<int32_t>(), *rc::gen::arbitrary<uint64_t>(), {}};
      for (int i = *rc::gen::inRange(0, 6); i > 0; --i) log.entries.push_back(AnyEntry());
      return log;
    }
    case 3:
      return Goodbye{*rc::gen::inRange(-1, 100), *rc::gen::arbitrary<bool>(), AnyText()};
    case 4:
      return Ping{*rc::gen::arbitrary<uint64_t>()};
    case 5:
      return Pong{*rc::gen::arbitrary<uint64_t>(), *rc::gen::arbitrary<int64_t>()};
    case 6:
      return Stalled{*rc::gen::inRange<int64_t>(0, 1 << 30)};
    case 7:
      return StatusQuery{*rc::gen::arbitrary<uint64_t>(), *rc::gen::arbitrary<bool>()};
    case 8: {
      StatusReply reply{*rc::gen::arbitrary<uint64_t>(), *rc::gen::arbitrary<bool>(), AnyLast(), AnyLast(), {}, 0};
      for (int i = *rc::gen::inRange(0, 4); i > 0; --i) reply.waiting.push_back(AnyWaiting());
      reply.more = *rc::gen::inRange(0, 9);
      return reply;
    }
    case 9:
      return AnyMarks();
    case 10:
      return StreamEnd{*rc::gen::arbitrary<int32_t>(), *rc::gen::arbitrary<uint64_t>(), *rc::gen::arbitrary<uint64_t>(),
                       *rc::gen::arbitrary<uint64_t>()};
    default:
      return Revoke{*rc::gen::inRange(0, 256), *rc::gen::inRange(-1, 100), *rc::gen::arbitrary<int32_t>(),
                    *rc::gen::arbitrary<int64_t>(), AnyText()};
  }
}

bool Equal(const LogEntry& a, const LogEntry& b) {
  return a.kind == b.kind && a.plan == b.plan && a.executions == b.executions && a.uid == b.uid && a.name == b.name &&
         a.tuning == b.tuning &&
         (a.kind != LogEntry::Kind::kError ||
          (a.error.code == b.error.code && a.error.message == b.error.message && a.error.rank == b.error.rank));
}

struct EqualTo {
  const ControlMessage& other;
  bool operator()(const RequestMessage& a) const {
    const auto& b = std::get<RequestMessage>(other);
    return a.set == b.set && a.request == b.request;
  }
  bool operator()(const ReadyMessage& a) const {
    const auto& b = std::get<ReadyMessage>(other);
    return a.set == b.set && a.uid == b.uid && a.first_dim == b.first_dim;
  }
  bool operator()(const MarkMessage& a) const {
    const auto& b = std::get<MarkMessage>(other);
    const auto same = [](const Mark& x, const Mark& y) {
      return x.uid == y.uid && x.first_dim == y.first_dim && std::ranges::equal(x.data, y.data);
    };
    return a.set == b.set && a.epoch == b.epoch && a.position == b.position &&
           std::ranges::equal(a.marks, b.marks, same);
  }
  bool operator()(const StreamEnd& a) const { return a == std::get<StreamEnd>(other); }
  bool operator()(const LogMessage& a) const {
    const auto& b = std::get<LogMessage>(other);
    return a.set == b.set && a.first_position == b.first_position &&
           std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(), Equal);
  }
  bool operator()(const Goodbye& a) const {
    const auto& b = std::get<Goodbye>(other);
    return a.rank == b.rank && a.clean == b.clean && a.text == b.text;
  }
  bool operator()(const Ping& a) const { return a.number == std::get<Ping>(other).number; }
  bool operator()(const Pong& a) const {
    const Pong& b = std::get<Pong>(other);
    return a.number == b.number && a.wall_ns == b.wall_ns;
  }
  bool operator()(const Revoke& a) const {
    const auto& b = std::get<Revoke>(other);
    return a.kind == b.kind && a.rank == b.rank && a.detail == b.detail && a.pid == b.pid && a.text == b.text;
  }
  bool operator()(const Stalled& a) const { return a.waited_ms == std::get<Stalled>(other).waited_ms; }
  bool operator()(const StatusQuery& a) const {
    const auto& b = std::get<StatusQuery>(other);
    return a.number == b.number && a.dump == b.dump;
  }
  bool operator()(const StatusReply& a) const {
    const auto& b = std::get<StatusReply>(other);
    return a.number == b.number && a.blocked == b.blocked && a.submitted == b.submitted && a.finished == b.finished &&
           a.waiting == b.waiting && a.more == b.more;
  }
};

RC_GTEST_PROP(Control, RoundTrip, ()) {
  const ControlMessage message = AnyMessage();
  const Bytes bytes = Encode(message);
  const auto back = Decode(bytes);
  RC_ASSERT(back.has_value());
  RC_ASSERT(back->index() == message.index());
  RC_ASSERT(std::visit(EqualTo{*back}, message));
  RC_ASSERT(Encode(*back) == bytes);
}

RC_GTEST_PROP(Control, RoundTripAtAnyAddress, ()) {
  const ControlMessage message = AnyMessage();
  const Bytes bytes = Encode(message);
  Bytes shifted(bytes.size() + 1);
  std::memcpy(shifted.data() + 1, bytes.data(), bytes.size());
  const auto back = Decode(std::span(shifted).subspan(1));
  RC_ASSERT(back.has_value());
  RC_ASSERT(Encode(*back) == bytes);
}

RC_GTEST_PROP(Control, DamagedBytesNeverCrash, ()) {
  const Bytes original = Encode(AnyMessage());
  const auto seed = *rc::gen::arbitrary<uint32_t>();
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    Bytes bytes = original;
    for (uint32_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random() % 3 == 0 ? 0xFF : random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    const auto message = Decode(bytes);
    if (message) {
      RC_ASSERT(Decode(Encode(*message)).has_value());  // whatever is taken is a legal message
    } else {
      RC_ASSERT(message.error().code == Code::kInvalidArgument);
    }
  }
}

TEST(Control, MarksThatNoMemberPutsAreRefused) {
  const std::vector<std::byte> most(kMaxMarkBytes);
  const std::vector<std::byte> more(kMaxMarkBytes + 1);
  const auto taken = [](std::vector<Mark> marks) {
    return Decode(Encode(MarkMessage{1, 2, 3, std::move(marks)})).has_value();
  };
  const auto half = std::span(most).first(most.size() / 2);
  EXPECT_TRUE(taken({{4, 5, most}}));
  EXPECT_TRUE(taken({{4, 5, half}, {6, 0, half}}));
  EXPECT_FALSE(taken({})) << "no mark";
  EXPECT_FALSE(taken({{4, 5, more}}));
  EXPECT_FALSE(taken({{4, 5, most}, {6, 0, half}})) << "together more than fits";
  EXPECT_FALSE(taken({{4, -5, most}})) << "a negative dimension";
  EXPECT_TRUE(taken({{0, 0, {}}}));
  EXPECT_FALSE(taken({{0, 5, {}}})) << "a void mark has no dimension";
  EXPECT_FALSE(taken({{0, 0, std::span(most).first(1)}})) << "nor data";
  const Bytes whole = Encode(MarkMessage{1, 2, 3, {{4, 5, std::span(most).first(3)}, {6, 7, {}}}});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) EXPECT_FALSE(Decode(std::span(whole).first(bytes))) << bytes;
}

TEST(Control, TuningsThatNobodyCouldWorkWithAreRefused) {
  const auto taken = [](const Tuning& tuning) {
    LogEntry entry;
    entry.kind = LogEntry::Kind::kTune;
    entry.tuning = tuning;
    return Decode(Encode(LogMessage{0, 0, {entry}})).has_value();
  };
  EXPECT_TRUE(taken({}));
  EXPECT_TRUE(taken({1, 0, 0}));
  EXPECT_TRUE(taken({Tuning::kMostPercent, Tuning::kMostEager, Tuning::kMostSpin}));
  EXPECT_FALSE(taken({0, 0, 0})) << "chunks of nothing";
  EXPECT_FALSE(taken({Tuning::kMostPercent + 1, 0, 0})) << "chunks that no staging area has room for";
  EXPECT_FALSE(taken({100, -1, 0}));
  EXPECT_FALSE(taken({100, Tuning::kMostEager + 1, 0}));
  EXPECT_FALSE(taken({100, 0, -1}));
  EXPECT_FALSE(taken({100, 0, Tuning::kMostSpin + 1}));
}

TEST(Control, ReadyIsSmallAndFixed) {
  const ControlMessage message = ReadyMessage{7, 0x1122334455667788, 9};
  EXPECT_EQ(Encode(message).size(), 32u);
  const auto frame = EncodeReady({7, 0x1122334455667788, 9});
  EXPECT_EQ(Bytes(frame.begin(), frame.end()), Encode(message));
  EXPECT_FALSE(Decode(Encode(ReadyMessage{0, 1, -1})));
}

TEST(Control, AKindWithoutABodyIsRefused) {
  // Found by the property above: damaging the table's layout can leave the kind and lose the body.
  const Bytes original = Encode(Ping{1});
  int refused = 0;
  for (size_t i = 0; i < original.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      Bytes bytes = original;
      bytes[i] = static_cast<std::byte>(value);
      const auto result = Decode(bytes);
      if (!result && result.error().message.find("no body") != std::string::npos) ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(Control, NothingAndRubbishAreRefused) {
  EXPECT_FALSE(Decode({}));
  EXPECT_FALSE(Decode(Bytes(7)));
  EXPECT_FALSE(Decode(Bytes(64)));
  EXPECT_FALSE(Decode(Bytes(4096, std::byte{0xFF})));
  const auto huge = Decode(Bytes(kMaxControlBytes + 1));
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, Code::kInvalidArgument);
}

TEST(Control, ValuesOutOfRangeAreRefused) {
  const auto refused = [](auto change) {
    RequestMessage message{0, {"x", {}}};
    message.request.signature.shape = {2, 3};
    change(message.request);
    const auto result = Decode(Encode(message));
    return !result && result.error().code == Code::kInvalidArgument && !Check(message.request);
  };
  EXPECT_FALSE(refused([](Request& r) {}));
  EXPECT_TRUE(refused([](Request& r) { r.signature.op = static_cast<OpKind>(9); }));
  EXPECT_TRUE(refused([](Request& r) { r.signature.op = static_cast<OpKind>(-1); }));
  EXPECT_TRUE(refused([](Request& r) { r.signature.dtype = static_cast<DType>(kDTypeCount); }));
  EXPECT_TRUE(refused([](Request& r) { r.signature.reduce_op = static_cast<ReduceOp>(6); }));
  EXPECT_TRUE(refused([](Request& r) { r.signature.device = static_cast<Device>(2); }));
  EXPECT_TRUE(refused([](Request& r) { r.signature.shape = {2, -1}; }));
  EXPECT_TRUE(refused([](Request& r) { r.signature.shape = Shape(kMaxDims + 1, 1); }));
  EXPECT_FALSE(refused([](Request& r) { r.signature.shape = Shape(kMaxDims, 1); }));
  EXPECT_TRUE(refused([](Request& r) { r.signature.shape = {int64_t{1} << 61}; }));  // times 4 bytes
  EXPECT_FALSE(refused([](Request& r) { r.signature.shape = {int64_t{1} << 60}; }));
  EXPECT_TRUE(refused([](Request& r) { r.name = std::string(kMaxNameBytes + 1, 'n'); }));
  EXPECT_FALSE(refused([](Request& r) { r.name = std::string(kMaxNameBytes, 'n'); }));
}

TEST(Control, LongErrorTextsAreCutNotRefused) {
  Revoke revoke;
  revoke.text = std::string(kMaxTextBytes - 1, 'a') + "\xC3\xA4 and more";
  const auto back = Decode(Encode(revoke));
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<Revoke>(*back).text, std::string(kMaxTextBytes - 1, 'a'));
}

TEST(Control, LongLogsAreCutIntoMessages) {
  LogMessage log{1, 100, {}};
  for (int i = 0; i < 40; ++i) {
    LogEntry entry;
    entry.kind = LogEntry::Kind::kDefine;
    entry.plan.uid = i + 1;
    entry.plan.name = std::string(kMaxNameBytes, 'n');
    log.entries.push_back(entry);
  }
  LogEntry gather;
  gather.executions.push_back({1, std::vector<int64_t>(kMaxMembers, 3)});
  log.entries.push_back(gather);
  LogEntry fused;
  for (size_t i = 0; i < kMaxExecutions; ++i) fused.executions.push_back({i, {}});
  log.entries.push_back(fused);

  std::vector<LogEntry> back;
  const auto messages = EncodeLog(log);
  EXPECT_GT(messages.size(), 2u);
  for (const Bytes& bytes : messages) {
    EXPECT_LE(bytes.size(), kMaxControlBytes);
    auto message = Decode(bytes);
    ASSERT_TRUE(message) << message.error().message;
    auto& part = std::get<LogMessage>(*message);
    EXPECT_EQ(part.set, 1);
    EXPECT_EQ(part.first_position, 100 + back.size());
    for (LogEntry& entry : part.entries) back.push_back(std::move(entry));
  }
  EXPECT_TRUE(std::equal(back.begin(), back.end(), log.entries.begin(), log.entries.end(), Equal));
  EXPECT_TRUE(EncodeLog({}).empty());
}

}  // namespace
}  // namespace hvd::wire
