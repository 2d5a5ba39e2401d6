// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "hvd/base/log.h"
#include "hvd/base/signal_mask.h"
#include "hvd/engine/relax.h"
#include "hvd/topology/cores.h"
#include "hvd/tune/tuner.h"

namespace hvd::engine {
namespace {

std::atomic<uint32_t> g_stamp{0};

// Spinning costs nobody anything while there is a core per rank; with fewer, a spinning rank holds up the one it waits
// for.
constexpr int kSpinsAlone = 20000;
constexpr int kSpinsCrowded = 4;

// Who submits operations to a set without shared memory, none later than so long after the one before, and waits for
// none of them, will submit more. For a short time they are left to each other's company: one message tells of all of
// them, and they run as one. Waking the engine's thread for each would take the core from the caller, and end each
// before the next one is submitted, one round trip for one operation.
constexpr Duration kInARow = std::chrono::microseconds(500);
constexpr int kFewInARow = 1;
constexpr Duration kGatherTime = std::chrono::microseconds(50);
// After two that found no company, as many are not gathered.
constexpr int kAfterAlone = 64;

// Of all ranks of this host: each may be bound to some of them.
int UsableCores(const World& world) {
  std::vector<int> pids;
  for (const Rank rank : world.layout.local_ranks) pids.push_back(world.ranks[rank].pid);
  return topology::UsableCores(pids);
}

}  // namespace

Engine::Engine(World world, Options options)
    : world_(std::move(world)),
      options_(std::move(options)),
      arena_(&transport::shm::Arena::Process()),
      registry_(++g_stamp),
      recorder_(world_, options_.config, options_.signals),
      liveness_(this),
      stalls_(this),
      fusion_threshold_(world_.settings.fusion_threshold) {
  crowded_ = world_.layout.local_size > UsableCores(world_);
  spin_limit_ = crowded_ ? kSpinsCrowded : kSpinsAlone;
  if (options_.config.spin_us >= 0)
    spin_limit_ = static_cast<int>(std::min<int64_t>(options_.config.spin_us * kSpinsPerMicrosecond, 1 << 30));
  most_spins_ = spin_limit_;
  if (world_.window != nullptr && !crowded_ && spin_limit_ >= kSpinsAlone) world_.window->PayForFences();
}

Result<std::unique_ptr<Engine>> Engine::Create(World world, Options options) {
  int core = -1;
  if (const std::string& affinity = options.config.thread_affinity; !affinity.empty()) {
    HVD_ASSIGN_OR_RETURN(core, topology::CoreOf(affinity, world.layout.local_rank));
  }
  std::unique_ptr<Engine> engine(new Engine(std::move(world), std::move(options)));
  HVD_RETURN_IF_ERROR(engine->CreateSets());
  engine->StartTuning();
  Engine* self = engine.get();
  for (Rank rank = 0; rank < self->world_.layout.size; ++rank) {
    transport::Pair* pair = self->world_.pairs.empty() ? nullptr : self->world_.pairs[rank].get();
    if (pair == nullptr) continue;
    pair->OnMessage([self, rank](std::span<const std::byte> bytes) { self->OnControl(rank, bytes); });
    pair->OnClosed([self, rank](const Error& error) { self->OnPairClosed(rank, error); });
    // Init is over, this rank answers from now on. A silence from here on is none of a rank that is still starting.
    if (!self->ReachedByRing(rank)) pair->SendMessage(wire::Encode(wire::Pong{0}));
  }
  if (self->world_.window != nullptr) self->world_.window->Beat();
  self->AskForClock();
  if (self->options_.own_thread) {
    const SignalsBlocked blocked;
    self->thread_ = std::thread([self, core] {
      if (core >= 0) {
        if (auto bound = topology::BindToCore(core); !bound) {
          log::Warning("HOROVOD_THREAD_AFFINITY={}: {}; the engine's thread is not bound.",
                       self->options_.config.thread_affinity, bound.error().message);
        }
      }
      self->ThreadMain();
    });
    pthread_setname_np(self->thread_.native_handle(), "hvd-engine");
  }
  return engine;
}

Result<Operation*> Engine::Enter(Submission submission) {
  if (shut_down_.load(std::memory_order_relaxed)) {
    return Fail(Code::kUnknown, "Horovod has been shut down: hvd.shutdown() was called; call hvd.init() again");
  }
  if (phase_.load(std::memory_order_acquire) != Phase::kWorking) return Fail(Health());
  // Once: another thread may be removing it.
  ProcessSet* set = sets_.Find(submission.process_set);
  FillIn(set, &submission);
  HVD_RETURN_IF_ERROR(Validate(set, submission));
  Operation* op = MakeOperation(set, std::move(submission));
  if (auto entered = registry_.Enter(op); !entered) {
    op->owners.store(1, std::memory_order_relaxed);
    registry_.Drop(op);
    return Fail(std::move(entered).error());
  }
  PinBuffers(op);
  return op;
}

Operation* Engine::MakeOperation(ProcessSet* set, Submission submission) {
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
  op->error = Error{Code::kOk, {}, -1};
  // A join waits for ranks that still have work, however long that takes.
  const double usual = op->request.signature.op == OpKind::kJoin ? 0 : options_.config.op_timeout_s;
  const double timeout = submission.timeout_s > 0 ? submission.timeout_s : usual;
  if (timeout > 0) op->deadline = world_.loop->Now() + Seconds(timeout);
  return op;
}

void Engine::PinBuffers(Operation* op) {
  // Arena memory that its owner gives back meanwhile stays until the operation is over.
  op->pinned_input = op->input_bytes > 0 && transport::shm::Arena::Process().Pin(op->input, op->input_bytes) >= 0;
  if (op->output != op->input) {
    op->pinned_output = op->output_bytes > 0 && transport::shm::Arena::Process().Pin(op->output, op->output_bytes) >= 0;
  }
  pending_.fetch_add(1, std::memory_order_relaxed);
}

Result<Handle> Engine::Submit(Submission submission) {
  const SetTable::Pin pin(options_.dynamic_sets ? &sets_ : nullptr);
  HVD_ASSIGN_OR_RETURN(Operation * op, Enter(std::move(submission)));
  const Handle handle = op->handle;  // a completion callback may release it before this returns
  ProcessSet* set = op->set;
  const bool called_back = op->done != nullptr;
  const bool gathers = Gathers(*set);
  if (!TryToken()) {
    LeaveInInbox(op);
  } else if (gathers) {
    BeginManyOnLoop({&op, 1});
    ++gathered_;
    GiveToken();
  } else {
    BeginOnLoop(op);
    // Where the peers come at the same time it is over before the engine's thread would have woken up. Of all else that
    // thread takes care: it is woken while anything is unfinished. Who is called back has other work to do meanwhile.
    const bool stays = !called_back && set->announces_in_memory() && thread_.joinable();
    stays ? EndMore(set) : static_cast<void>(Progress());
    GiveToken();
  }
  if (unfinished()) gathers ? world_.loop->WakeIn(kGatherTime) : world_.loop->Wake();
  return handle;
}

bool Engine::Gathers(const ProcessSet& set) {
  if (set.by_memory() || !options_.own_thread) return false;
  const Time now = world_.loop->Now();
  const bool follows = now - submitted_last_.exchange(now, std::memory_order_relaxed) < kInARow;
  const int before = submitted_in_a_row_.load(std::memory_order_relaxed);
  submitted_in_a_row_.store(follows ? std::min(before, kFewInARow + 1) + 1 : 0, std::memory_order_relaxed);
  return follows && before >= kFewInARow;
}

void Engine::EndGathering() {
  if (std::exchange(gathered_, 0) != 1) return;
  // In vain. The last one of many may find no company; if the next one does not either, each waits for the one before
  // it, and gathering makes them late.
  const bool again = submitted_in_a_row_.load(std::memory_order_relaxed) <= kFewInARow + 1;
  submitted_in_a_row_.store(again ? -kAfterAlone : kFewInARow, std::memory_order_relaxed);
}

void Engine::Abandon(Operation* op) {
  registry_.Leave(op);
  pending_.fetch_sub(1, std::memory_order_relaxed);
  if (op->pinned_input) transport::shm::Arena::Process().Release(op->input);
  if (op->pinned_output) transport::shm::Arena::Process().Release(op->output);
  registry_.Forget(op->handle);
  registry_.Drop(op);
}

Result<std::vector<Handle>> Engine::SubmitGroup(std::vector<Submission> submissions) {
  const SetTable::Pin pin(options_.dynamic_sets ? &sets_ : nullptr);
  std::vector<Operation*> ops;
  std::vector<Handle> handles;
  const auto group = std::make_shared<Group>();
  for (Submission& submission : submissions) {
    auto entered = Enter(std::move(submission));
    if (!entered) {
      for (Operation* op : ops) Abandon(op);
      return Fail(std::move(entered).error());
    }
    (*entered)->group = group;
    ops.push_back(*entered);
    handles.push_back((*entered)->handle);
  }
  group->missing = static_cast<int>(ops.size());
  if (TryToken()) {
    BeginManyOnLoop(ops);
    Progress();
    GiveToken();
  } else {
    for (Operation* op : ops) LeaveInInbox(op);
  }
  if (unfinished()) world_.loop->Wake();
  return handles;
}

Result<Engine::Ran> Engine::Run(Submission submission, Time until) {
  Operation* op = nullptr;
  bool token = false;
  const uint64_t prepared = submission.prepared;
  const int process_set = submission.process_set;
  {
    const SetTable::Pin pin(options_.dynamic_sets ? &sets_ : nullptr);
    HVD_ASSIGN_OR_RETURN(op, Enter(std::move(submission)));
    op->callback.store(Operation::Callback::kHeld, std::memory_order_relaxed);
    token = TryToken();
    if (token) {
      DrainInbox();  // the removal of a process set must not overtake what was submitted on it before
      BeginOnLoop(op);
    } else {
      LeaveInInbox(op);
    }
  }
  if (token) {
    TurnUntilOver(op, until);
    if (op->over.load(std::memory_order_acquire)) shortcuts_.Learn(prepared, process_set, *op);
    GiveToken();
  }
  return Await(op, until);
}

Engine::Ran Engine::Await(Operation* op, Time until) {
  const Handle handle = op->handle;
  if (!Wait(op, until)) {
    auto held = Operation::Callback::kHeld;
    if (op->callback.compare_exchange_strong(held, Operation::Callback::kPosted, std::memory_order_acq_rel)) {
      return Ran{nullptr, handle};
    }
    // It ended at this moment, and nobody but this caller will hear of it.
    Wait(op, Time::max());
  }
  return Ran{op, handle};
}

void Engine::LeaveInInbox(Operation* op) {
  recorder_.Queued(op);
  std::lock_guard lock(inbox_mutex_);
  inbox_.push_back(op);
  inbox_full_.store(true, std::memory_order_release);
}

void Engine::BeginOnLoop(Operation* op) {
  recorder_.Submitted(op);
  if (op->deadline != Time::max()) timed_.push_back(op);
  if (phase_.load(std::memory_order_relaxed) == Phase::kRevoked) return Complete(op, DescribeCause());
  op->set->Begin(op);
}

void Engine::BeginManyOnLoop(std::span<Operation* const> ops) {
  begins_many_ = true;
  for (Operation* op : ops) BeginOnLoop(op);
  begins_many_ = false;
}

void Engine::Complete(Operation* op, Error error) {
  if (tuner_ != nullptr) Tune(*op, error);
  recorder_.Over(op, error);
  registry_.Leave(op);
  if (ProcessSet* set = RemovedBy(*op)) set->Close(false);  // it stays
  if (op->deadline != Time::max()) std::erase(timed_, op);
  recorder_.counters().operations.Add(1);
  pending_.fetch_sub(1, std::memory_order_relaxed);
  if (op->pinned_input) transport::shm::Arena::Process().Release(op->input);
  if (op->pinned_output) transport::shm::Arena::Process().Release(op->output);
  if (op->group == nullptr) return Conclude(op, std::move(error));
  const std::shared_ptr<Group> group = std::move(op->group);
  group->waiting.push_back(op);
  FinishInGroup(group.get(), error);
}

void Engine::FinishInGroup(Group* group, const Error& error) {
  if (group->error.code == Code::kOk) group->error = error;
  if (--group->missing > 0) return;
  for (Operation* member : group->waiting) Conclude(member, group->error);
}

void Engine::Conclude(Operation* op, Error error) {
  if (op->detached.load(std::memory_order_relaxed)) return registry_.Drop(op);
  recorder_.Concluded(*op, error.code == Code::kOk);
  if (error.code != Code::kOk || !last_error_.empty()) last_error_ = error.message;
  // The sequencer may know before this rank does that one left.
  if (error.code == Code::kUnknown && error.rank >= 0) {
    Rank nobody = -1;
    first_left_.compare_exchange_strong(nobody, error.rank);
  }
  if (error.code != Code::kOk && op->engine_owned) {
    FreeShared(std::exchange(op->output, nullptr));
    op->engine_owned = false;
  }
  op->error = std::move(error);
  if (!LeaveToAlloc(op)) Announce(op);
}

Operation* Engine::MakeStandIn() {
  Operation* op = registry_.Make();
  op->stands_in = true;
  op->detached.store(true, std::memory_order_relaxed);
  op->owners.store(1, std::memory_order_relaxed);
  pending_.fetch_add(1, std::memory_order_relaxed);
  return op;
}

bool Engine::LeaveToAlloc(Operation* op) {
  using Alloc = Operation::Alloc;
  Alloc asked = Alloc::kAsked;
  if (op->allocated.compare_exchange_strong(asked, Alloc::kDropped, std::memory_order_acq_rel)) return false;
  Alloc running = Alloc::kRunning;
  return op->allocated.compare_exchange_strong(running, Alloc::kOrphaned, std::memory_order_acq_rel);
}

bool Engine::CallsBack(Operation* op) {
  if (op->done == nullptr) return false;
  auto held = Operation::Callback::kHeld;
  return !op->callback.compare_exchange_strong(held, Operation::Callback::kUnneeded, std::memory_order_acq_rel);
}

void Engine::Announce(Operation* op) {
  const bool calls_back = CallsBack(op);
  if (calls_back) op->owners.fetch_add(1, std::memory_order_relaxed);
  op->over.store(true, std::memory_order_seq_cst);
  if (op_waiters_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard lock(wait_mutex_);
    wait_changed_.notify_all();
  }
  if (calls_back) {
    completer_.Post(Completer::Kind::kDone, [this, op] {
      op->done(op->handle, op->error.code == Code::kOk ? nullptr : &op->error);
      op->done = nullptr;
      registry_.Drop(op);
    });
  }
  registry_.Drop(op);
}

void Engine::AskForMemory(Operation* op, size_t bytes) {
  op->owners.fetch_add(1, std::memory_order_relaxed);
  completer_.Post(Completer::Kind::kAlloc, [this, op, bytes] {
    using Alloc = Operation::Alloc;
    Alloc asked = Alloc::kAsked;
    if (op->allocated.compare_exchange_strong(asked, Alloc::kRunning, std::memory_order_acq_rel)) {
      op->alloc_answer = op->alloc(bytes, op->output_shape);
      Alloc running = Alloc::kRunning;
      // The token holder takes the answer, unless the operation failed meanwhile.
      if (!op->allocated.compare_exchange_strong(running, Alloc::kAnswered, std::memory_order_acq_rel)) Announce(op);
      world_.loop->Wake();
    }
    registry_.Drop(op);
  });
  // A completion callback that waits for the token runs this job itself.
  if (op_waiters_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard lock(wait_mutex_);
    wait_changed_.notify_all();
  }
}

}  // namespace hvd::engine
