// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "hvd/base/tensor_labels.h"
#include "hvd/controller/describe.h"
#include "hvd/engine/memory.h"
#include "hvd/engine/stall/stall_inspector.h"
#include "hvd/kernel/kernel.h"
#include "hvd/transport/shm/arena.h"

namespace hvd::engine {
namespace {

std::atomic<uint32_t> g_stamp{0};

// How often a time-out that could not be reported yet checks again.
constexpr Duration kAnswerLook = std::chrono::milliseconds(20);

}  // namespace

Operations::Operations(const EngineContext& context, ProgressToken* token, Completer* completer)
    : context_(context), token_(token), completer_(completer), registry_(++g_stamp) {}

Result<Operation*> Operations::Enter(Submission submission) {
  if (context_.membership->shut_down() || context_.membership->revoked()) return Fail(context_.membership->Health());
  // Once: another thread may be removing it.
  ProcessSet* set = context_.sets->Find(submission.process_set);
  ApplyDefaults(set, &submission);
  HVD_RETURN_IF_ERROR(Validate(*context_.sets, context_.world->layout.rank, set, submission));
  Operation* op = Make(set, std::move(submission));
  if (auto entered = registry_.Enter(op); !entered) {
    op->owners.store(1, std::memory_order_relaxed);
    registry_.Drop(op);
    return Fail(std::move(entered).error());
  }
  PinBuffers(op);
  return op;
}

Operation* Operations::Make(ProcessSet* set, Submission submission) {
  Operation* op = registry_.Make();
  op->request = std::move(submission.request);
  DType& type = op->request.signature.dtype;
  // From here on the request says what travels: that is what ranks have to agree on.
  if (submission.wire && kernel::CanNarrow(type, *submission.wire)) {
    op->memory_type = std::exchange(type, *submission.wire);
  }
  op->set = set;
  op->input = static_cast<const std::byte*>(submission.input);
  op->input_bytes = submission.input_bytes;
  op->output = static_cast<std::byte*>(submission.output);
  op->output_bytes = submission.output_bytes;
  op->output_given = submission.output != nullptr;
  op->alloc = std::move(submission.alloc);
  op->done = std::move(submission.done);
  op->error = kSuccess;
  // A join waits for ranks that still have work, however long that takes.
  const double usual = op->request.signature.op == OpKind::kJoin ? 0 : context_.config->op_timeout_s;
  const double timeout = submission.timeout_s > 0 ? submission.timeout_s : usual;
  if (timeout > 0) op->deadline = context_.world->loop->Now() + Seconds(timeout);
  return op;
}

void Operations::Adopt(Operation* op) {
  registry_.EnterFromFastPath(op);
  PinBuffers(op);
  if (op->deadline != Time::max()) timed_.push_back(op);
}

void Operations::PinBuffers(Operation* op) {
  auto& arena = transport::shm::Arena::Process();
  op->pinned_input = op->input_bytes > 0 && arena.Pin(op->input, op->input_bytes) >= 0;
  if (op->output != op->input) {
    op->pinned_output = op->output_bytes > 0 && arena.Pin(op->output, op->output_bytes) >= 0;
  }
  pending_.fetch_add(1, std::memory_order_relaxed);
}

void Operations::UnpinBuffers(Operation* op) {
  pending_.fetch_sub(1, std::memory_order_relaxed);
  if (op->pinned_input) transport::shm::Arena::Process().Unpin(op->input);
  if (op->pinned_output) transport::shm::Arena::Process().Unpin(op->output);
}

void Operations::Abandon(Operation* op) {
  registry_.Leave(op);
  UnpinBuffers(op);
  registry_.Forget(op->handle);
  registry_.Drop(op);
}

void Operations::LeaveInInbox(Operation* op) {
  context_.recorder->Queued(op);
  const std::lock_guard lock(inbox_mutex_);
  inbox_.push_back(op);
  inbox_full_.store(true, std::memory_order_release);
}

bool Operations::DrainInbox() {
  if (!inbox_full_.load(std::memory_order_acquire)) return false;
  std::vector<Operation*> batch;
  {
    const std::lock_guard lock(inbox_mutex_);
    batch.swap(inbox_);
    inbox_full_.store(false, std::memory_order_relaxed);
  }
  batch.size() == 1 ? Begin(batch[0]) : BeginAll(batch);
  return !batch.empty();
}

void Operations::Begin(Operation* op) {
  context_.recorder->Submitted(op);
  if (op->deadline != Time::max()) timed_.push_back(op);
  if (context_.membership->phase() == Membership::Phase::kRevoked) {
    return Complete(op, context_.membership->DescribeCause());
  }
  op->set->Begin(op);
}

void Operations::BeginAll(std::span<Operation* const> ops) {
  const ControlChannel::Bundle bundle(context_.control);
  for (Operation* op : ops) Begin(op);
}

void Operations::Complete(Operation* op, Error error) {
  context_.recorder->Over(op, error);
  registry_.Leave(op);
  if (op->deadline != Time::max()) std::erase(timed_, op);
  context_.recorder->counters().operations.Add(1);
  UnpinBuffers(op);
  if (op->group == nullptr) return Conclude(op, std::move(error));
  const std::shared_ptr<OperationGroup> group = std::move(op->group);
  group->waiting.push_back(op);
  FinishInGroup(group.get(), error);
}

void Operations::FinishInGroup(OperationGroup* group, const Error& error) {
  if (group->error.code == Code::kOk) group->error = error;
  if (--group->missing > 0) return;
  for (Operation* member : group->waiting) Conclude(member, group->error);
}

void Operations::Conclude(Operation* op, Error error) {
  if (op->detached.load(std::memory_order_relaxed)) return registry_.Drop(op);
  context_.recorder->Concluded(*op, error.code == Code::kOk);
  context_.membership->NoteOutcome(error);
  if (error.code != Code::kOk && op->engine_owned) {
    FreeShared(std::exchange(op->output, nullptr));
    op->engine_owned = false;
  }
  op->error = std::move(error);
  if (!LeaveToAlloc(op)) NotifyCompletion(op);
}

Operation* Operations::MakeStandIn() {
  Operation* op = registry_.Make();
  op->stands_in = true;
  op->detached.store(true, std::memory_order_relaxed);
  op->owners.store(1, std::memory_order_relaxed);
  pending_.fetch_add(1, std::memory_order_relaxed);
  return op;
}

bool Operations::LeaveToAlloc(Operation* op) {
  using Alloc = Operation::Alloc;
  Alloc asked = Alloc::kAsked;
  if (op->allocated.compare_exchange_strong(asked, Alloc::kDropped, std::memory_order_acq_rel)) return false;
  Alloc running = Alloc::kRunning;
  return op->allocated.compare_exchange_strong(running, Alloc::kOrphaned, std::memory_order_acq_rel);
}

bool Operations::CallsBack(Operation* op) {
  if (op->done == nullptr) return false;
  auto held = Operation::Callback::kHeld;
  return !op->callback.compare_exchange_strong(held, Operation::Callback::kUnneeded, std::memory_order_acq_rel);
}

void Operations::NotifyCompletion(Operation* op) {
  const bool calls_back = CallsBack(op);
  if (calls_back) op->owners.fetch_add(1, std::memory_order_relaxed);
  // The engine goes on with an operation that timed out, and may look at its function.
  const bool goes_on = op->detached.load(std::memory_order_relaxed);
  op->over.store(true, std::memory_order_seq_cst);
  token_->NotifyWaiters();
  if (calls_back) {
    completer_->Post(Completer::Kind::kDone, [this, op, goes_on] {
      op->done(op->handle, op->error.code == Code::kOk ? nullptr : &op->error);
      if (!goes_on) op->done = nullptr;
      registry_.Drop(op);
    });
  }
  registry_.Drop(op);
}

void Operations::AskForMemory(Operation* op, size_t bytes) {
  op->owners.fetch_add(1, std::memory_order_relaxed);
  completer_->Post(Completer::Kind::kAlloc, [this, op, bytes] {
    using Alloc = Operation::Alloc;
    Alloc asked = Alloc::kAsked;
    if (op->allocated.compare_exchange_strong(asked, Alloc::kRunning, std::memory_order_acq_rel)) {
      op->alloc_answer = op->alloc(bytes, op->output_shape);
      Alloc running = Alloc::kRunning;
      // The token holder takes the answer, unless the operation failed meanwhile.
      if (!op->allocated.compare_exchange_strong(running, Alloc::kAnswered, std::memory_order_acq_rel)) {
        NotifyCompletion(op);
      }
      context_.world->loop->Wake();
    }
    registry_.Drop(op);
  });
  // A completion callback that waits for the token runs this job itself.
  token_->NotifyWaiters();
}

Error Operations::DescribeTimeout(const Operation& op, const std::vector<Rank>& missing) const {
  const controller::Signature& signature = op.request.signature;
  if (op.state == Operation::State::kSubmitted) {  // it is held back
    return {Code::kDeadlineExceeded,
            fmt::format("{} timed out: this rank's own operations on process set {} are not over. The set is removed "
                        "when they are, and all ranks have called.",
                        NameOf(signature.op), signature.numbers[0]),
            -1};
  }
  const bool one = missing.size() < 2;
  const std::string who = missing.empty() ? std::string("some rank") : controller::DescribeRanks(missing);
  return {
      Code::kDeadlineExceeded,
      fmt::format("{} '{}'{} timed out: {} {} not submitted it{}. If {} later, {} this rank's data; this rank may use "
                  "the name again after that.",
                  NameOf(signature.op), op.request.name, TensorLabelInBrackets(op.request.name), who,
                  one ? "has" : "have", missing.empty() ? ", or what it sent is still on its way" : "",
                  one ? "it does" : "they do", one ? "it gets" : "they get"),
      missing.empty() ? -1 : missing[0]};
}

bool Operations::Expire(Time now, StallInspector* stalls) {
  std::vector<Operation*> expired;
  for (Operation* op : timed_) {
    if (op->deadline <= now && !op->detached.load(std::memory_order_relaxed)) expired.push_back(op);
  }
  bool any = false;
  for (Operation* op : expired) {
    const auto missing = stalls->AskForMissing(*op, op->set->MissingFor(*op), now);
    if (!missing) continue;
    if (!op->set->Detach(op)) {
      op->deadline = now + Seconds(1);  // all ranks are there and data moves: it ends by itself or by liveness
      continue;
    }
    any = true;
    std::erase(timed_, op);
    registry_.LeaveBuffers(op);
    context_.recorder->TimedOut(*op);
    op->error = DescribeTimeout(*op, *missing);
    context_.membership->NoteOutcome(op->error);
    if (const std::shared_ptr<OperationGroup> group = std::move(op->group)) FinishInGroup(group.get(), op->error);
    op->owners.fetch_add(1, std::memory_order_relaxed);  // the engine keeps the detached one
    NotifyCompletion(op);
  }
  return any;
}

Time Operations::NextExpiry(Time now) const {
  Time next = Time::max();
  // An operation whose time has come waits for an answer, which wakes this rank; see Expire.
  for (const Operation* op : timed_) next = std::min(next, op->deadline > now ? op->deadline : now + kAnswerLook);
  return next;
}

}  // namespace hvd::engine
