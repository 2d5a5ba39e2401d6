// SPDX-License-Identifier: Apache-2.0
#pragma once
// One submitted operation on this rank, from submission to completion.
//
// Thread safety: the submitter fills it in; afterwards only the token holder touches it, but for what is marked.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hvd/base/clock.h"
#include "hvd/comm/communicator.h"
#include "hvd/controller/plan.h"

namespace hvd::engine {

class ProcessSet;
struct NameEntry;

using Handle = uint64_t;

// Memory for an output whose size only the collective knows. Returns nullptr to refuse.
using AllocFunction = std::function<void*(uint64_t bytes, const Shape& shape)>;
using DoneFunction = std::function<void(Handle handle, const Error* error)>;

struct Operation;

inline const Error kSuccess{Code::kOk, {}, -1};

// Operations that are over together. With the token.
struct OperationGroup {
  int missing = 0;
  Error error = kSuccess;
  std::vector<Operation*> waiting;  // finished, but for the others
};

struct Operation {
  enum class State : uint8_t {
    kSubmitted,   // in the inbox
    kAnnounced,   // its mark is, or waits to be, in the announcement stream
    kSent,        // the sequencer was told
    kAllocating,  // agreed; waits for the memory of its output
    kRunning,     // data moves
    kOver,
  };

  // The alloc function, and who ends an operation that fails meanwhile.
  enum class Alloc : uint8_t {
    kNone,      // not asked
    kAsked,     // queued
    kRunning,   // called, has not returned: memory that the caller lent it is in use
    kAnswered,  // alloc_answer has what it gave
    kDropped,   // failed before it was called: it never is
    kOrphaned,  // failed while it runs: over when it returns
  };

  // Who hears that it is over, of a caller that waits for a while and a function that is called later.
  enum class Callback : uint8_t {
    kPosted,    // the function, if there is one
    kHeld,      // the caller, who still waits
    kUnneeded,  // the caller has it
  };

  // What was asked for.
  controller::Request request;
  ProcessSet* set = nullptr;
  NameEntry* entry = nullptr;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  size_t input_bytes = 0;
  size_t output_bytes = 0;
  // The type of the elements there, where it is not the request's: they travel as that.
  std::optional<DType> memory_type;
  bool output_given = false;
  AllocFunction alloc;
  DoneFunction done;
  std::atomic<Callback> callback{Callback::kPosted};
  Time deadline = Time::max();
  uint64_t flight = ~uint64_t{0};  // in the flight recorder
  // By the recorder's clock; 0: not yet.
  struct Ticks {
    uint64_t submitted = 0;
    uint64_t agreed = 0;
    uint64_t over = 0;
  } ticks;
  Rank last = -1;  // to want it, as far as the sequencer has heard; -1: this rank does not know
  // While there is a timeline.
  Time submitted{};
  Time agreed{};
  Time running{};

  // How far it is.
  State state = State::kSubmitted;
  comm::Work work;
  uint64_t uid = 0;  // of the plan that was announced or said ready for
  std::shared_ptr<OperationGroup> group;
  bool stands_in = false;  // for a rank that has joined: nobody here asked for it
  // Timed out: runs on with a copy of its input, for the others' sake. Read by submitters of the same name, too.
  std::atomic<bool> detached{false};
  std::vector<std::byte> snapshot;
  void* alloc_answer = nullptr;
  std::atomic<Alloc> allocated{Alloc::kNone};  // written by the completion thread, too

  // What came out. Written before `over` is set, then read by anybody.
  Handle handle = 0;
  Shape output_shape;
  std::vector<int32_t> received_splits;  // alltoall
  int number = 0;                        // join: the last rank; process sets: the id
  bool engine_owned = false;
  Error error;
  std::atomic<bool> over{false};
  // What of it the registry's BuffersInUse has, by address; 0: nothing.
  uintptr_t writes_from = 0;
  uintptr_t reads_from = 0;
  bool pinned_input = false;
  bool pinned_output = false;

  bool waits_for_memory() const {
    const Alloc now = allocated.load(std::memory_order_acquire);
    return now == Alloc::kAsked || now == Alloc::kRunning;
  }

  // Owners: the handle, the engine until completion, a queued callback. The last one recycles it.
  std::atomic<int> owners{0};
};

}  // namespace hvd::engine
