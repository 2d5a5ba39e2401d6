// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ranks say to each other about operations: the plain structs that control messages carry. controller/plan.h
// explains the words and gives these structs their usual names (hvd::controller::Plan, ...); they are defined here
// because the codec is below the controller.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "hvd/base/result.h"
#include "hvd/base/types.h"

namespace hvd::wire {

// Limits that a receiver enforces; Check() tells a sender beforehand.
inline constexpr size_t kMaxControlBytes = 1 << 20;
inline constexpr size_t kMaxNameBytes = 64 << 10;
inline constexpr size_t kMaxTextBytes = 64 << 10;  // error messages; Encode cuts longer ones
inline constexpr size_t kMaxDims = 32;
inline constexpr size_t kMaxMembers = 65536;
inline constexpr size_t kMaxExchangeMembers = 256;  // of an alltoall: its square is at most kMaxMembers
inline constexpr size_t kMaxMarkBytes = 64 << 10;   // of the data beside the marks of a message
inline constexpr size_t kMaxExecutions = 8192;      // of one fused operation

enum class Device : int32_t { kCpu = 0, kCuda = 1 };

// What must be equal on all members (shape: see Sequencer for the ops whose first dimension may differ).
struct Signature {
  OpKind op = OpKind::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  Device device = Device::kCpu;
  Rank root = -1;  // global rank; broadcast only
  double prescale = 1.0;
  double postscale = 1.0;
  Shape shape;
  // Alltoall: rows of this member for each member (its own business, as shape[0] is). Change of process sets: the
  // ranks.
  std::vector<int64_t> numbers;

  bool operator==(const Signature&) const = default;
};

struct Request {
  std::string name;
  Signature signature;

  bool operator==(const Request&) const = default;
};

struct Plan {
  uint64_t uid = 0;
  std::string name;
  // For allgather and alltoall shape[0] is each rank's own business: it is 0 here, and `first_dims` of the entry that
  // executes the plan tells.
  Signature signature;
  bool cached = false;  // members may answer with its uid from now on

  bool operator==(const Plan&) const = default;
};

struct Execution {
  uint64_t uid = 0;
  // Allgather: one per member. Alltoall: rows from member i to member j at [i * members + j]. Else empty.
  std::vector<int64_t> first_dims;

  bool operator==(const Execution&) const = default;
};

// How members move data, where that can be changed while the job runs. Autotuning does; see engine/autotuning.cc.
struct Tuning {
  static constexpr int32_t kMostPercent = 400;  // a staging area has room for one chunk then
  static constexpr int64_t kMostEager = 64 << 20;
  static constexpr int64_t kMostSpin = 1'000'000'000;
  int32_t chunk_percent = 100;       // chunks and slices, of those that the job began with
  int64_t eager_bytes = kMostEager;  // most bytes beside a mark; never more than the job began with
  int64_t spin_us = kMostSpin;       // as eager_bytes, for what each rank began with

  bool operator==(const Tuning&) const = default;
};

struct LogEntry {
  enum class Kind : int32_t {
    kDefine = 1,   // `plan` exists
    kExecute = 2,  // run `executions` now, as one fused operation if there are several
    kForget = 3,   // `uid` is no longer cached (evicted or contradicted); who said ready for it sends a request again
    kError = 4,    // the operation called `name` fails on every member with `error`
    kResume = 5,   // members may announce again, in epoch `uid`
    kJoined = 6,   // all members have joined, the member `uid` as the last one
    kTune = 7,     // from here on `tuning` counts; members that announce in memory begin epoch `uid` with it
  };
  Kind kind = Kind::kExecute;
  Plan plan;
  std::vector<Execution> executions;
  uint64_t uid = 0;
  std::string name;
  Error error;
  Tuning tuning;
};

// Member to sequencer: an operation in full.
struct RequestMessage {
  int32_t set = 0;
  Request request;
};

// Member to sequencer: a known plan once more.
struct ReadyMessage {
  int32_t set = 0;
  uint64_t uid = 0;
  int64_t first_dim = 0;
};

// What a member wants done at a position of the announcement stream, and its data. uid 0: "not this way".
struct Mark {
  uint64_t uid = 0;
  int64_t first_dim = 0;
  std::span<const std::byte> data;  // of a decoded one: in the bytes that it was decoded from
};

// Member to member: its own mark, and those of the members before it that it hands on.
struct MarkMessage {
  int32_t set = 0;
  uint64_t epoch = 0;
  uint64_t position = 0;
  std::vector<Mark> marks;
};

// Member to member, before it leaves: how far it has decided the announcement stream.
struct StreamEnd {
  int32_t set = 0;
  uint64_t epoch = 0;
  uint64_t first = 0;  // position of the epoch
  uint64_t head = 0;   // first position that is not decided

  bool operator==(const StreamEnd&) const = default;
};

// Sequencer to member: entries at positions first_position, first_position + 1, ...
struct LogMessage {
  int32_t set = 0;
  uint64_t first_position = 0;
  std::vector<LogEntry> entries;
};

// The sender leaves, for the sake of `rank`, its own or one that left before; `text` is what it knows about the reason.
// Not clean: with operations pending, or without being asked to.
struct Goodbye {
  Rank rank = -1;
  bool clean = true;
  std::string text;
};

struct Ping {
  uint64_t number = 0;
};
struct Pong {
  uint64_t number = 0;  // of the ping
  int64_t wall_ns = 0;  // the sender's wall clock
};

// The generation is over; the first cause, handed on. `kind` and `detail` (a signal, an exit status) are the engine's
// words; the codec only promises that kind is in [0, kMaxKind].
struct Revoke {
  static constexpr int32_t kMaxKind = 255;
  int32_t kind = 0;
  Rank rank = -1;
  int32_t detail = 0;
  int64_t pid = 0;
  std::string text;
};

// To the rank that reports stalls: the sender has waited too long for others.
struct Stalled {
  int64_t waited_ms = 0;
};

// "What are you doing?" Answered by a StatusReply with the same number. `dump`: also write the flight recorder's file.
struct StatusQuery {
  uint64_t number = 0;
  bool dump = false;
};

// An operation that is not over.
struct Waiting {
  enum class Stage : int32_t {
    kAsked = 0,    // submitted, not agreed on
    kAgreed = 1,   // waits for its turn or for memory
    kRunning = 2,  // data moves
    kOthers = 3,   // not submitted by the sender, which is the sequencer and knows that others did
    kHeld = 4,     // a removal of a process set, which the sender tells nobody while it has operations on that set
  };
  int32_t set = 0;  // id
  Request request;  // of a very long name both ends; `numbers` of a removal only: the id of the set
  Stage stage = Stage::kAsked;
  int64_t waited_ms = 0;
  std::vector<int64_t> missing;  // ranks that it waits for, as far as the sender knows; the first kMaxMissing
  int32_t missing_count = 0;
  bool before = false;  // done earlier under this name, or under one made by the same count

  bool operator==(const Waiting&) const = default;
};

// What a rank did last; ago_ms < 0: nothing yet.
struct Last {
  int32_t set = 0;
  std::string name;
  OpKind op = OpKind::kAllreduce;
  int64_t ago_ms = -1;

  bool operator==(const Last&) const = default;
};

// What a rank is doing.
struct StatusReply {
  static constexpr size_t kMaxWaiting = 200;
  static constexpr size_t kMaxMissing = 64;
  static constexpr size_t kMaxShownName = 1024;
  uint64_t number = 0;
  bool blocked = false;  // its program waits: a thread is inside a call, or a callback is to be called
  Last submitted;
  Last finished;
  std::vector<Waiting> waiting;  // the longest first
  int32_t more = 0;              // that are not in `waiting`
};

using ControlMessage = std::variant<RequestMessage, ReadyMessage, MarkMessage, LogMessage, Goodbye, Ping, Pong, Revoke,
                                    Stalled, StatusQuery, StatusReply, StreamEnd>;

}  // namespace hvd::wire
