// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/engine.h"

#include <sched.h>

#include <utility>

#include "hvd/topology/cores.h"
#include "hvd/wire/control.h"

namespace hvd::engine {
namespace {

// One name for all changes: a rank's next one begins when the one before is over here. So no rank uses the memory of a
// removed set for the old one when another uses it again.
constexpr std::string_view kChange = "process_set.change";

}  // namespace

Engine::Engine(World world, Options options)
    : world_(std::move(world)),
      options_(std::move(options)),
      recorder_(world_, options_.config, options_.signals),
      control_(&world_),
      context_{&world_, &options_.config, &control_, &sets_, &membership_, &recorder_},
      factory_(&world_, &options_.config, &services_, &recorder_),
      operations_(context_, &token_, &completer_),
      membership_(&world_, &options_.config, &control_, &sets_, &recorder_),
      liveness_(&world_, &options_.config, &control_, &sets_, &membership_),
      token_(&world_, &membership_, &completer_, &progress_),
      scheduler_(context_, &token_, &completer_, &progress_),
      stalls_(context_, &scheduler_),
      tuning_(context_, &factory_, &scheduler_),
      changes_(context_, &factory_, &operations_, &tuning_, options_.dynamic_sets, options_.resume_policy),
      messages_(context_, &factory_, &changes_, &liveness_, &stalls_),
      progress_(context_, &operations_, &changes_, &liveness_, &stalls_),
      services_(context_, &operations_, &changes_, &tuning_),
      fast_path_(context_, &token_, &scheduler_, &operations_, &tuning_) {
  changes_.OnEarlyMessage([this](Rank from, std::span<const std::byte> bytes) { messages_.OnMessage(from, bytes); });
}

Result<std::unique_ptr<Engine>> Engine::Create(World world, Options options) {
  int core = -1;
  if (const std::string& affinity = options.config.thread_affinity; !affinity.empty()) {
    HVD_ASSIGN_OR_RETURN(core, topology::CoreOf(affinity, world.layout.local_rank));
  }
  std::unique_ptr<Engine> engine(new Engine(std::move(world), std::move(options)));
  HVD_RETURN_IF_ERROR(engine->changes_.Create(engine->options_.process_sets, engine->options_.surviving_sets));
  engine->tuning_.Start();
  engine->ConnectPeers();
  if (engine->world_.window != nullptr) engine->world_.window->Beat();
  engine->messages_.AskForClock();
  if (engine->options_.own_thread) engine->scheduler_.StartThread(core);
  return engine;
}

void Engine::ConnectPeers() {
  for (Rank rank = 0; rank < world_.layout.size; ++rank) {
    transport::Pair* pair = world_.pairs.empty() ? nullptr : world_.pairs[rank].get();
    if (pair == nullptr) continue;
    pair->OnMessage([this, rank](std::span<const std::byte> bytes) { messages_.OnMessage(rank, bytes); });
    pair->OnClosed([this, rank](const Error& error) {
      if (!token_.stopping()) membership_.OnPairClosed(rank, error);
    });
    // Init is over, this rank answers from now on. A silence from here on is none of a rank that is still starting.
    if (!control_.ByRing(rank)) pair->SendMessage(wire::Encode(wire::Pong{0}));
  }
}

Engine::~Engine() {
  Shutdown();
  completer_.Stop();  // its jobs use what is below it in the class
}

Result<Handle> Engine::Submit(Submission submission) {
  const SetTable::Pin pin = PinSets();
  HVD_ASSIGN_OR_RETURN(Operation * op, operations_.Enter(std::move(submission)));
  const Handle handle = op->handle;  // a completion callback may release it before this returns
  ProcessSet* set = op->set;
  const bool called_back = op->done != nullptr;
  SubmissionBatcher& batcher = operations_.batcher();
  const bool batches = !set->by_memory() && options_.own_thread && batcher.ShouldBatch(world_.loop->Now());
  if (!token_.TryTake()) {
    operations_.LeaveInInbox(op);
  } else if (batches) {
    operations_.BeginAll({&op, 1});
    batcher.Hold();
    token_.Return();
  } else {
    operations_.Begin(op);
    // If the peers come at the same time it is over before the engine's thread would have woken up. That thread takes
    // care of all else: it is woken while anything is unfinished. A caller with a callback has other work meanwhile.
    const bool stays = !called_back && set->announces_in_memory() && scheduler_.joinable();
    stays ? scheduler_.FinishAnnounced(set) : static_cast<void>(progress_.Progress());
    token_.Return();
  }
  if (progress_.unfinished()) batches ? world_.loop->WakeIn(SubmissionBatcher::kTime) : world_.loop->Wake();
  return handle;
}

Result<std::vector<Handle>> Engine::SubmitGroup(std::vector<Submission> submissions) {
  const SetTable::Pin pin = PinSets();
  std::vector<Operation*> ops;
  std::vector<Handle> handles;
  const auto group = std::make_shared<OperationGroup>();
  for (Submission& submission : submissions) {
    auto entered = operations_.Enter(std::move(submission));
    if (!entered) {
      for (Operation* op : ops) operations_.Abandon(op);
      return Fail(std::move(entered).error());
    }
    (*entered)->group = group;
    ops.push_back(*entered);
    handles.push_back((*entered)->handle);
  }
  group->missing = static_cast<int>(ops.size());
  if (token_.TryTake()) {
    operations_.BeginAll(ops);
    progress_.Progress();
    token_.Return();
  } else {
    for (Operation* op : ops) operations_.LeaveInInbox(op);
  }
  if (progress_.unfinished()) world_.loop->Wake();
  return handles;
}

Result<Ran> Engine::Run(Submission submission, Time until) {
  Operation* op = nullptr;
  bool token = false;
  const uint64_t prepared = submission.prepared;
  const int process_set = submission.process_set;
  {
    const SetTable::Pin pin = PinSets();
    HVD_ASSIGN_OR_RETURN(op, operations_.Enter(std::move(submission)));
    op->callback.store(Operation::Callback::kHeld, std::memory_order_relaxed);
    token = token_.TryTake();
    if (token) {
      operations_.DrainInbox();  // the removal of a process set must not overtake what was submitted on it before
      operations_.Begin(op);
    } else {
      operations_.LeaveInInbox(op);
    }
  }
  if (token) {
    scheduler_.DriveUntilOver(op, until);
    if (op->over.load(std::memory_order_acquire)) fast_path_.Learn(prepared, process_set, *op);
    token_.Return();
  }
  return fast_path_.Await(op, until);
}

bool Engine::Wait(Operation* op, Time until) {
  operations_.batcher().NoteWait();
  return scheduler_.Wait(op, until);
}

Result<uint64_t> Engine::Prepare(int process_set, controller::Request request, std::optional<DType> wire) {
  const SetTable::Pin pin = PinSets();
  HVD_RETURN_IF_ERROR(ValidateRequest(sets_, world_.layout.rank, process_set, request));
  return operations_.registry().Prepare(process_set, std::move(request), wire);
}

Result<int> Engine::AddSet(std::vector<Rank> ranks) {
  constexpr std::string_view kNewSet = "the process set";
  HVD_RETURN_IF_ERROR(CheckRanks(kNewSet, world_.layout.size, &ranks));
  // The set is checked again when it is made, because another thread may be adding one.
  HVD_RETURN_IF_ERROR(changes_.CheckNew(kNewSet, ranks));
  controller::Request request;
  request.name = kChange;
  request.signature.op = OpKind::kAddProcessSet;
  request.signature.numbers.assign(ranks.begin(), ranks.end());
  return ChangeSets(std::move(request));
}

Status Engine::RemoveSet(int id) {
  if (id == 0) return Fail(Code::kInvalidArgument, "the global process set cannot be removed");
  if (sets_.Find(id) == nullptr) return Fail(Code::kInvalidArgument, "process set {} does not exist", id);
  controller::Request request;
  request.name = kChange;
  request.signature.op = OpKind::kRemoveProcessSet;
  request.signature.numbers = {id};
  HVD_RETURN_IF_ERROR(ChangeSets(std::move(request)));
  return {};
}

Result<int> Engine::ChangeSets(controller::Request request) {
  if (!options_.dynamic_sets) {
    return Fail(Code::kFailedPrecondition,
                "process sets cannot be added or removed while running: call init with process_sets=\"dynamic\" or set "
                "HOROVOD_DYNAMIC_PROCESS_SETS=1 on every rank");
  }
  const auto one_change = changes_.LockChanges();
  Submission submission;
  submission.request = std::move(request);
  HVD_ASSIGN_OR_RETURN(const Ran change, Run(std::move(submission)));
  const Error error = change.op->error;
  const int id = change.op->number;
  Forget(change.handle);
  if (error.code != Code::kOk) return Fail(error);
  return id;
}

void Engine::Retune(const wire::Tuning& tuning) {
  while (!token_.TryTake()) {
    world_.loop->Wake();
    sched_yield();
  }
  tuning_.Request(tuning);
  token_.Return();
}

trace::CounterSnapshot Engine::ReadCounters() const {
  trace::CounterSnapshot snapshot = recorder_.Read();
  snapshot.fusion_threshold = static_cast<uint64_t>(tuning_.fusion_threshold());
  for (trace::CounterSnapshot::Peer& peer : snapshot.peers) {
    if (peer.rank == world_.layout.rank) continue;
    if (world_.window != nullptr && world_.layout.LocalOf(peer.rank) >= 0) {
      const PeerByteCounts& shm = counters().peers[peer.rank].shm;
      peer.transports.push_back({"shm", shm.sent.load(), shm.received.load()});
    }
    if (world_.pairs.empty() || world_.pairs[peer.rank] == nullptr) continue;
    const PeerByteCounts& flow = world_.pairs[peer.rank]->flow();
    peer.transports.push_back({control_.ByRing(peer.rank) ? "ring" : "tcp", flow.sent.load(), flow.received.load()});
  }
  return snapshot;
}

}  // namespace hvd::engine
