// SPDX-License-Identifier: Apache-2.0
#include "hvd/engine/engine.h"

#include <algorithm>
#include <utility>

#include "hvd/comm/host/pair_communicator.h"
#include "hvd/topology/cores.h"

namespace hvd::engine {
namespace {

std::atomic<uint32_t> g_stamp{0};

// Spinning costs nobody anything while there is a core per rank; with fewer, a spinning rank holds up the one it waits
// for.
constexpr int kSpinsAlone = 20000;
constexpr int kSpinsCrowded = 200;

}  // namespace

Engine::Engine(World world, Options options)
    : world_(std::move(world)),
      options_(std::move(options)),
      arena_(&transport::shm::Arena::Process()),
      registry_(++g_stamp),
      liveness_(this) {
  crowded_ = world_.layout.local_size > topology::UsableCores();
  spin_limit_ = crowded_ ? kSpinsCrowded : kSpinsAlone;
  if (options_.config.spin_us >= 0)
    spin_limit_ = static_cast<int>(std::min<int64_t>(options_.config.spin_us * 20, 1 << 30));
}

Result<std::unique_ptr<Engine>> Engine::Create(World world, Options options) {
  std::unique_ptr<Engine> engine(new Engine(std::move(world), std::move(options)));
  HVD_RETURN_IF_ERROR(engine->CreateSets());
  Engine* self = engine.get();
  for (Rank rank = 0; rank < self->world_.layout.size; ++rank) {
    transport::Pair* pair = self->world_.pairs.empty() ? nullptr : self->world_.pairs[rank].get();
    if (pair == nullptr) continue;
    pair->OnMessage([self, rank](std::span<const std::byte> bytes) { self->OnControl(rank, bytes); });
    pair->OnClosed([self, rank](const Error& error) { self->OnPairClosed(rank, error); });
  }
  if (self->options_.own_thread) self->thread_ = std::thread([self] { self->ThreadMain(); });
  return engine;
}

Status Engine::CreateSets() {
  const Layout& layout = world_.layout;
  std::vector<std::vector<Rank>> sets{{}};
  for (Rank rank = 0; rank < layout.size; ++rank) sets[0].push_back(rank);
  sets.insert(sets.end(), options_.process_sets.begin(), options_.process_sets.end());
  for (size_t id = 0; id < sets.size(); ++id) {
    std::vector<Rank>& ranks = sets[id];
    std::sort(ranks.begin(), ranks.end());
    if (ranks.empty()) return Fail(Code::kInvalidArgument, "process set {} is empty: give at least one rank", id);
    if (ranks.front() < 0 || ranks.back() >= layout.size) {
      return Fail(Code::kInvalidArgument, "process set {} names rank {}, but ranks are 0 to {}", id,
                  ranks.front() < 0 ? ranks.front() : ranks.back(), layout.size - 1);
    }
    if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
      return Fail(Code::kInvalidArgument, "process set {} names rank {} twice", id,
                  *std::adjacent_find(ranks.begin(), ranks.end()));
    }
    for (size_t other = 0; other < id; ++other) {
      if (sets[other] == ranks) {
        return Fail(Code::kInvalidArgument, "process sets {} and {} have the same ranks: use one of them", other, id);
      }
    }
    ProcessSetOptions set;
    set.id = static_cast<int>(id);
    set.ranks = ranks;
    set.host = this;
    set.counters = &counters_;
    set.sequencer = {set.id, ranks, world_.settings.cache_capacity, world_.settings.fusion_threshold};
    const auto at = std::find(ranks.begin(), ranks.end(), layout.rank);
    set.me = at == ranks.end() ? -1 : static_cast<int>(at - ranks.begin());
    std::vector<int> locals;
    for (Rank rank : ranks) {
      if (const int local = layout.LocalOf(rank); local >= 0) locals.push_back(local);
    }
    if (world_.window != nullptr && locals.size() > 1) {
      // Every local rank carves, member or not: offsets stay equal.
      const auto bytes =
          collective::window::Stream::Bytes(static_cast<int>(locals.size()), world_.settings.eager_bytes);
      HVD_ASSIGN_OR_RETURN(std::byte * announce, world_.window->Carve(bytes));
      HVD_ASSIGN_OR_RETURN(std::byte * log, world_.window->Carve(bytes));
      if (set.me >= 0 && locals.size() == ranks.size()) {
        comm::host::WindowOptions window;
        window.window = world_.window.get();
        window.memory = &arena_;
        window.locals = locals;
        window.me = set.me;
        window.eager_bytes = world_.settings.eager_bytes;
        window.staging.chunk_bytes = world_.settings.chunk_bytes;
        window.stream_memory = announce;
        set.announce = std::make_unique<comm::host::WindowCommunicator>(window);
        window.stream_memory = log;
        set.log = std::make_unique<comm::host::WindowCommunicator>(window);
      }
    }
    if (set.me >= 0 && set.log == nullptr && ranks.size() > 1) {
      comm::host::PairOptions pairs;
      pairs.process_set = set.id;
      pairs.me = set.me;
      int last_host = -1;
      for (Rank rank : ranks) {
        pairs.pairs.push_back(world_.pairs[rank].get());
        if (layout.host_of[rank] != last_host) pairs.host_sizes.push_back(0);
        last_host = layout.host_of[rank];
        ++pairs.host_sizes.back();
      }
      set.log = std::make_unique<comm::host::PairCommunicator>(std::move(pairs));
    }
    sets_.push_back(std::make_unique<ProcessSet>(std::move(set)));
  }
  return {};
}

std::vector<std::vector<Rank>> Engine::ProcessSets() const {
  std::vector<std::vector<Rank>> sets;
  for (const auto& set : sets_) sets.push_back(set->ranks());
  return sets;
}

Result<Operation*> Engine::Enter(Submission submission) {
  if (shut_down_.load(std::memory_order_relaxed)) {
    return Fail(Code::kUnknown, "Horovod has been shut down: hvd.shutdown() was called; call hvd.init() again");
  }
  if (phase_.load(std::memory_order_acquire) != Phase::kWorking) return Fail(Health());
  HVD_RETURN_IF_ERROR(Validate(submission));
  Operation* op = registry_.Make();
  op->request = std::move(submission.request);
  op->set = sets_[submission.process_set].get();
  op->input = static_cast<const std::byte*>(submission.input);
  op->input_bytes = submission.input_bytes;
  op->output = static_cast<std::byte*>(submission.output);
  op->output_bytes = submission.output_bytes;
  op->output_given = submission.output != nullptr;
  op->alloc = std::move(submission.alloc);
  op->done = std::move(submission.done);
  op->error = Error{Code::kOk, {}, -1};
  const double timeout = submission.timeout_s > 0 ? submission.timeout_s : options_.config.op_timeout_s;
  if (timeout > 0) op->deadline = world_.loop->Now() + Seconds(timeout);
  if (auto entered = registry_.Enter(op); !entered) {
    op->owners.store(1, std::memory_order_relaxed);
    registry_.Drop(op);
    return Fail(std::move(entered).error());
  }
  // Arena memory that its owner gives back meanwhile stays until the operation is over.
  op->pinned_input = op->input_bytes > 0 && transport::shm::Arena::Process().Pin(op->input, op->input_bytes) >= 0;
  if (op->output != op->input) {
    op->pinned_output = op->output_bytes > 0 && transport::shm::Arena::Process().Pin(op->output, op->output_bytes) >= 0;
  }
  pending_.fetch_add(1, std::memory_order_relaxed);
  return op;
}

Result<Handle> Engine::Submit(Submission submission) {
  HVD_ASSIGN_OR_RETURN(Operation * op, Enter(std::move(submission)));
  const Handle handle = op->handle;  // a completion callback may release it before this returns
  if (TryToken()) {
    BeginOnLoop(op);
    Progress();
    GiveToken();
  } else {
    LeaveInInbox(op);
  }
  if (pending_.load(std::memory_order_relaxed) > 0) world_.loop->Wake();
  return handle;
}

Result<Operation*> Engine::Run(Submission submission) {
  HVD_ASSIGN_OR_RETURN(Operation * op, Enter(std::move(submission)));
  if (TryToken()) {
    BeginOnLoop(op);
    TurnUntilOver(op, Time::max());
    GiveToken();
  } else {
    LeaveInInbox(op);
  }
  Wait(op, Time::max());
  return op;
}

void Engine::LeaveInInbox(Operation* op) {
  std::lock_guard lock(inbox_mutex_);
  inbox_.push_back(op);
  inbox_full_.store(true, std::memory_order_release);
}

void Engine::BeginOnLoop(Operation* op) {
  if (op->deadline != Time::max()) timed_.push_back(op);
  if (phase_.load(std::memory_order_relaxed) == Phase::kRevoked) return Complete(op, DescribeCause());
  op->set->Begin(op);
}

void Engine::Complete(Operation* op, Error error) {
  registry_.Leave(op);
  if (op->deadline != Time::max()) std::erase(timed_, op);
  LiveCounters::Add(counters_.operations, 1);
  LiveCounters::Add(counters_.bytes, op->input_bytes);
  pending_.fetch_sub(1, std::memory_order_relaxed);
  if (op->pinned_input) transport::shm::Arena::Process().Release(op->input);
  if (op->pinned_output) transport::shm::Arena::Process().Release(op->output);
  if (op->detached.load(std::memory_order_relaxed)) return registry_.Drop(op);
  if (error.code != Code::kOk || !last_error_.empty()) last_error_ = error.message;
  if (error.code != Code::kOk && op->engine_owned) {
    FreeShared(std::exchange(op->output, nullptr));
    op->engine_owned = false;
  }
  op->error = std::move(error);
  if (!LeaveToAlloc(op)) Announce(op);
}

bool Engine::LeaveToAlloc(Operation* op) {
  using Alloc = Operation::Alloc;
  Alloc asked = Alloc::kAsked;
  if (op->allocated.compare_exchange_strong(asked, Alloc::kDropped, std::memory_order_acq_rel)) return false;
  Alloc running = Alloc::kRunning;
  return op->allocated.compare_exchange_strong(running, Alloc::kOrphaned, std::memory_order_acq_rel);
}

void Engine::Announce(Operation* op) {
  const bool calls_back = op->done != nullptr;
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
