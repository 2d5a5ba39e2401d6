// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operations of this rank, from submission to completion: the registry, the inbox of threads that do not have the
// progress token, groups, time-outs, and the notification of callers.
//
// Thread safety: Enter, Abandon, LeaveInInbox, registry() and batcher() as they say, pending and
// has_submissions from any thread; the rest with the progress token.
// Lifetime: what the constructor is given outlives it. Stop the completer before this object ends.

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "hvd/engine/completer.h"
#include "hvd/engine/engine_context.h"
#include "hvd/engine/progress_token.h"
#include "hvd/engine/registry.h"
#include "hvd/engine/submission.h"
#include "hvd/engine/submission_batcher.h"

namespace hvd::engine {

class StallInspector;

class Operations {
 public:
  Operations(const EngineContext& context, ProgressToken* token, Completer* completer);

  Registry& registry() { return registry_; }
  SubmissionBatcher& batcher() { return batcher_; }
  // How many are not over.
  int pending() const { return pending_.load(std::memory_order_relaxed); }

  // Checks what a caller asks for and registers it. Pin the process sets before.
  Result<Operation*> Enter(Submission submission);
  // Undoes Enter.
  void Abandon(Operation* op);
  // Leaves an operation that was entered for the thread that holds the token.
  void LeaveInInbox(Operation* op);
  bool has_submissions() const { return inbox_full_.load(std::memory_order_acquire); }
  // As Enter, for a caller that holds the token and has done all checks: in no table yet.
  Operation* Make(ProcessSet* set, Submission submission);
  // The operation that Make made is registered, and begins at the position that its set has reached with it.
  void Adopt(Operation* op);

  // Begins what is in the inbox. Returns whether there was anything.
  bool DrainInbox();
  void Begin(Operation* op);
  // What these send travels together, in the next iteration of the loop.
  void BeginAll(std::span<Operation* const> ops);
  // Fails the operations whose time has come. Returns whether there were any.
  bool Expire(Time now, StallInspector* stalls);
  bool has_deadlines() const { return !timed_.empty(); }
  // When to call Expire again.
  Time NextExpiry(Time now) const;

  // The operation is over; `error` with kOk means success. A member of a group waits for the others.
  void Complete(Operation* op, Error error);
  // Makes an operation for a rank that has joined; nobody on this rank is notified of its end.
  Operation* MakeStandIn();
  // Has the operation's alloc function called on the completion thread.
  void AskForMemory(Operation* op, size_t bytes);

 private:
  // Keeps arena memory that its owner frees meanwhile until the operation is over.
  void PinBuffers(Operation* op);
  void UnpinBuffers(Operation* op);
  // One more of a group is over; the last one concludes those that wait.
  void FinishInGroup(OperationGroup* group, const Error& error);
  // The outcome is known: notifies the caller, unless its alloc function is running and does that.
  void Conclude(Operation* op, Error error);
  // Whether the caller's alloc function is running: then the operation is over when that has returned.
  bool LeaveToAlloc(Operation* op);
  // Whether the operation's function is to be called: not if the caller of Run still waits. Call before `over` is set.
  bool CallsBack(Operation* op);
  // Notifies the caller that the operation is over.
  void NotifyCompletion(Operation* op);
  Error DescribeTimeout(const Operation& op, const std::vector<Rank>& missing) const;

  const EngineContext context_;
  ProgressToken* const token_;
  Completer* const completer_;
  Registry registry_;
  SubmissionBatcher batcher_;
  std::atomic<int> pending_{0};

  std::mutex inbox_mutex_;
  std::vector<Operation*> inbox_;
  std::atomic<bool> inbox_full_{false};
  std::vector<Operation*> timed_;  // those with a deadline
};

}  // namespace hvd::engine
